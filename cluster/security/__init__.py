"""Security as rules without input and output: who a connection belongs to, and what a principal may do (A5).

    acls, standard_authorizer   ACL entries, resource patterns, and Kafka's StandardAuthorizer over them
    sasl/                             the SASL mechanisms, server and client side: PLAIN, SCRAM, OAUTHBEARER
    certificates                   principals of client certificates by `ssl.principal.mapping.rules`
    tls                            the `ssl.*` settings of a listener as TLS contexts

The bytes of TLS are the host's, the exchange of SASL requests is the network's,
and what is stored is `cluster/credentials/`.
"""
