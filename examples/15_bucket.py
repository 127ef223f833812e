"""A log in a bucket: nothing is lost with a machine, and whoever was taken over is fenced.

HEADWATER_EXAMPLE_BUCKET says where, as s3://bucket/prefix; credentials and endpoint come by AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.  Without it the example says so, and ends.
"""

import os
import sys

import headwater as hw

where = os.environ.get("HEADWATER_EXAMPLE_BUCKET")
if not where:
    print("set HEADWATER_EXAMPLE_BUCKET=s3://bucket/prefix to run this against a bucket")
    sys.exit()

first = hw.open(where)
orders = first.topic("orders", schema={"order_id": int})
before = orders.offsets()[0].next
orders.append([{"order_id": 1}, {"order_id": 2}])  # in the store when it returns

with hw.open(where, take_over=True) as second:  # as another machine would, were the first one gone
    second["orders"].append({"order_id": 3})
    try:
        orders.append({"order_id": 4})
    except hw.errors.Fenced as error:
        print("the first owner:", error.message)
    first.close()

    numbers = [row["order_id"] for row in second["orders"].read(start=before, partition=0).to_pylist()]
    assert numbers == [1, 2, 3], "what was acknowledged, once, and nothing else"
    print(f"{second.directory}: epoch {second.status().epoch}, orders {numbers}")
