"""A small Kubernetes cluster for tests: an API server over HTTP, the controllers of jobs, and one node.

It answers as the recorded cluster does; its pods run as processes of this machine.
"""

from fakecluster.cluster import FakeCluster as FakeCluster
