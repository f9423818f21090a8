"""Users, ACLs and delegation tokens: stored in the registry as Kafka stored them in ZooKeeper, and their requests (A5).

    users, scram_api     SCRAM credentials (`/config/users/U`); DescribeUserScramCredentials, Alter… (50, 51)
    acl_store, acl_api   ACLs (`/kafka-acl/…`, `/kafka-acl-extended/…`); DescribeAcls, CreateAcls, DeleteAcls (29 to 31)
    tokens, tokens_api   delegation tokens (`/delegation_token/…`); requests 38 to 41

Each store keeps what every broker needs in memory, and follows the registry by notifications.
"""
