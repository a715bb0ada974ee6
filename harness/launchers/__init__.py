"""WHO STARTS the command on a host.

direct   the keeper, detached, in a private directory of the host
"""
