"""How a message leaves: five stages, one by one or in bulk.

    stage       what it makes                       one message (general path)     many of one turn (fast path)
    parts       what the user gave                  `parts.Parts`                  the same
    prepared    checked, with an id                 `preparation` → `Message`      `preparation` → `Item`
    placed      its route and its queue             `placement`                    the same
    posted      bytes on a connection               `retry_path`, one request      `pipeline` → `outbox`, one write
    answered    a receipt, or another attempt       `retry_path`, `attempts`       `outbox` → `retry_path`

A message takes the fast path if nothing about it needs a thought: a topic that was sent to before, a short body, no
hook that looks on. A blocking producer posts in the thread of its caller (`client/blocking/direct.py`). Half messages
take the same road with rules of their own (`client/transactions`).
"""
