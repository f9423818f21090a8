"""The SASL mechanisms, server and client side, without input and output (A5).

    exchange        what a mechanism is to the network: a server side and a client side, and how an exchange fails
    plain           PLAIN (RFC 4616)
    scram           SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), credentials as Kafka stores them
    jaas            JAAS entries: the text of `sasl.jaas.config`
    mechanisms      the mechanisms of a listener, by its settings

Names are compared as they are: like Kafka, Harrow does not normalise user names and passwords (SASLprep).
"""
