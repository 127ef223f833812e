"""A view: table and tail as one. Rows are there the moment they are acknowledged, while landings go on beside."""

import threading

import headwater as hw

with hw.open("data_10") as log:
    clicks = log.topic("clicks", schema={"n": int, "page": str}, table="web.clicks")
    begin = clicks.scan().count()
    done = threading.Event()

    def land() -> None:
        while not done.wait(0.05):
            log.land()

    lander = threading.Thread(target=land)
    lander.start()
    for n in range(begin, begin + 60):
        clicks.append({"n": n, "page": "/" if n % 4 else "/cart"})
        assert clicks.scan().count() == n + 1, "no row twice, none missing"
    done.set()
    lander.join()

    landed = clicks.scan().plan.tail[0]
    carts = clicks.scan(columns=["n", "_hw_lsn"], where="page = '/cart'").to_polars().sort("n")
    print(f"{begin + 60} clicks, {len(carts)} of them in the cart; landed up to LSN {landed}")
    print(carts.tail(3))
