"""Admin to broker, about who may: access control of 4.9 (50 to 53), and that of 5.3, whose substance is in bodies."""

from bolide.protocol.headers.header import Header, RequestHeader, header, wire


@header
class UpdateAclRequest(RequestHeader):
    """An account of 4.9. The last two are lists of `name=PUB|SUB`, joined by commas."""

    access_key: str = wire("accessKey")
    secret_key: str | None = wire("secretKey", default=None, is_secret=True)
    white_remote_address: str | None = wire("whiteRemoteAddress", default=None)
    is_admin: bool = wire("admin", default=False)
    default_topic_permission: str | None = wire("defaultTopicPerm", default=None)
    default_group_permission: str | None = wire("defaultGroupPerm", default=None)
    topic_permissions: str | None = wire("topicPerms", default=None)
    group_permissions: str | None = wire("groupPerms", default=None)


@header
class DeleteAclRequest(RequestHeader):
    """Forget an account."""

    access_key: str = wire("accessKey")


@header
class GetAclVersionAnswer(Header):
    """Which version of its account file a broker follows."""

    version: str = wire("version")
    all_versions: str | None = wire("allAclFileVersion", default=None)
    broker_name: str = wire("brokerName")
    broker_address: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")


@header
class UpdateWhiteAddressesRequest(RequestHeader):
    """Addresses that need no account."""

    global_white_addresses: str = wire("globalWhiteAddrs")
    acl_file: str = wire("aclFileFullPath")


@header
class UserRequest(RequestHeader):
    """Create, change, delete or show a user of 5.3."""

    username: str | None = wire("username", default=None)


@header
class ListUsersRequest(RequestHeader):
    """Users whose name contains a text."""

    filter: str | None = wire("filter", default=None)


@header
class AuthAclRequest(RequestHeader):
    """Create, change or show the policies of a subject, `User:name`."""

    subject: str | None = wire("subject", default=None)


@header
class AuthDeleteAclRequest(RequestHeader):
    """Delete policies of a subject."""

    subject: str | None = wire("subject", default=None)
    policy_type: str | None = wire("policyType", default=None)
    resource: str | None = wire("resource", default=None)


@header
class AuthListAclRequest(RequestHeader):
    """Policies by subject and resource."""

    subject_filter: str | None = wire("subjectFilter", default=None)
    resource_filter: str | None = wire("resourceFilter", default=None)
