"""The real machine: the seam on the operating system's clock, files and sockets.

    host                 assembles `RealHost`
    clock, disk, tasks   the parts of the seam of the same names
    network              listeners and connections
    link                 one connection; `link_context`: what all links of a host share
    pieces, slow_send    what a link queues, and what it sends late
    tls_link             a link whose frames TLS encrypts; `tls_session`, `tls_context`: TLS itself

Only processes and their supervisor import this room. Protocol logic imports `host.seam`.
"""
