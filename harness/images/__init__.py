"""Container images: build, find, verify, push and ship them, here or on a host.

    catalog    docker/images.yaml -> ImageSpec
    recipe     what a build is given: context, arguments, argv   (pure)
    acts       find, survey, build, verify, push
    shipping   an image of this machine's engine -> a host without network
    remote     long acts through a transport, and what their failures mean

Everything goes through a transport and the engine's own command line (`engine` is how it begins, such
as ("docker",) or ("podman",)), so the same code serves this machine and one that has only sshd and an
engine.  No word of a shell text comes from data.
"""

from harness.images.acts import build, check, find, push, survey, verify
from harness.images.catalog import load_catalog, select
from harness.images.shipping import ship

__all__ = ["build", "check", "find", "load_catalog", "push", "select", "ship", "survey", "verify"]
