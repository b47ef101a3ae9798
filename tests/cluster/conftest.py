"""A Ray cluster of two nodes on this machine, and an S3-compatible server on 127.0.0.1."""

import os
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
# Workers import runoff and the helpers of these tests.
PATHS = [str(HERE.parent.parent / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(PATHS)
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
os.environ |= KEYS  # for workers, too
STORE = 80 * 2**20  # bytes of a node's object store, the least that Ray accepts


def idle(ray):
    """Wait until the cluster says that no task is left."""
    until = time.monotonic() + 120
    while (free := ray.available_resources().get("CPU")) != 2 and time.monotonic() < until:
        time.sleep(0.2)
    return free == 2


@pytest.fixture(scope="session")
def cluster():
    from ray.cluster_utils import Cluster

    # A death is noticed within a second or two instead of half a minute.
    noticed = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 300, "health_check_failure_threshold": 6}
    head = {"num_cpus": 1, "object_store_memory": STORE, "_system_config": noticed}
    started = Cluster(head_node_args=head, initialize_head=True)
    started.add_node(num_cpus=1, object_store_memory=STORE)
    yield started
    import ray

    ray.shutdown()
    started.shutdown()


@pytest.fixture
def ray_of(cluster):
    """Return a function that creates an executor on the cluster."""
    from runoff.executors import Ray

    return lambda **settings: Ray(address=cluster.address, **settings)


@pytest.fixture(scope="session")
def bucket():
    """A bucket of an S3-compatible server, and the settings to reach it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="results")
    yield {"storage": "s3://results/run", "storage_options": {"endpoint_url": url}}
    server.stop()
