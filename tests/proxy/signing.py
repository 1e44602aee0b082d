"""The header by which gRPC clients say who they are."""

import hmac


def signed(name: str = "admin", secret: str = "a-long-secret", at: str = "20261117T080000Z") -> dict[str, str]:
    signature = hmac.digest(secret.encode(), at.encode(), "sha1").hex().upper()
    told = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": told, "x-mq-date-time": at}
