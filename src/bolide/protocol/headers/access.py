"""Admin to broker, about who may: access control of 4.9 (50 to 54), and that of 5.3, whose substance is in bodies."""

from bolide.model.names import Label, Text
from bolide.protocol.headers.header import Header, RequestHeader, header, wire


@header
class UpdateAclRequest(RequestHeader):
    """An account of 4.9. The last two are lists of `name=PUB|SUB`, joined by commas."""

    access_key: Label = wire("accessKey")
    secret_key: Text | None = wire("secretKey", default=None, is_secret=True)
    white_remote_address: Text | None = wire("whiteRemoteAddress", default=None)
    is_admin: bool = wire("admin", default=False)
    default_topic_permission: Text | None = wire("defaultTopicPerm", default=None)
    default_group_permission: Text | None = wire("defaultGroupPerm", default=None)
    topic_permissions: Text | None = wire("topicPerms", default=None)
    group_permissions: Text | None = wire("groupPerms", default=None)


@header
class DeleteAclRequest(RequestHeader):
    """Forget an account."""

    access_key: Label = wire("accessKey")


@header
class GetAclVersionAnswer(Header):
    """Which version of its account file a broker follows."""

    version: Text = wire("version")
    all_versions: Text | None = wire("allAclFileVersion", default=None)
    broker_name: Label = wire("brokerName")
    broker_address: Label = wire("brokerAddr")
    cluster_name: Label = wire("clusterName")


@header
class UpdateWhiteAddressesRequest(RequestHeader):
    """Addresses that need no account; without a file they go to the default one."""

    global_white_addresses: Text = wire("globalWhiteAddrs")
    acl_file: Text | None = wire("aclFileFullPath", default=None)


@header
class UserRequest(RequestHeader):
    """Create, change, delete or show a user of 5.3."""

    username: Label | None = wire("username", default=None)


@header
class ListUsersRequest(RequestHeader):
    """Users whose name contains a text."""

    filter: Text | None = wire("filter", default=None)


@header
class AuthAclRequest(RequestHeader):
    """Create, change or show the policies of a subject, `User:name`."""

    subject: Label | None = wire("subject", default=None)


@header
class AuthDeleteAclRequest(RequestHeader):
    """Delete policies of a subject."""

    subject: Label | None = wire("subject", default=None)
    policy_type: Label | None = wire("policyType", default=None)
    resource: Text | None = wire("resource", default=None)


@header
class AuthListAclRequest(RequestHeader):
    """Policies by subject and resource."""

    subject_filter: Text | None = wire("subjectFilter", default=None)
    resource_filter: Text | None = wire("resourceFilter", default=None)
