"""Celery as a peer: single tasks, chains and chords on Redis, which also keeps the results.

The settings are the defaults. Single tasks ignore their results, as Celery's guide to optimizing says for tasks whose
results are not used. A worker for tasks that wait has threads. See peer/peer.go for the commands.
"""

import os
import sys
import time

import celery
from celery import Celery, chain, chord, group
from celery.signals import worker_ready

URL = os.environ.get("PEER_URL", "")
SLOW_SECONDS = 600
NAP_SECONDS = 0.1
PROCESSES = 10  # a worker with more slots has threads
BATCH = 1000

app = Celery("peer", broker=URL, backend=URL)
marks = None


def mark(kind, number):
    global marks
    if marks is None:
        marks = os.open(os.environ["PEER_MARKS"], os.O_WRONLY | os.O_APPEND)
    os.write(marks, b"%s %d %d\n" % (kind, number, time.time_ns() // 1000))


@app.task(name="single", ignore_result=True)
def single(number):
    mark(b"single", number)


@app.task(name="slow", ignore_result=True)
def slow(number):
    mark(b"slow", number)
    time.sleep(SLOW_SECONDS)


@app.task(name="nap", ignore_result=True)
def nap(number):
    time.sleep(NAP_SECONDS)
    mark(b"nap", number)


@app.task(name="step")
def step(number):
    mark(b"step", number)
    return number


@app.task(name="member")
def member(number):
    mark(b"member", number)
    return number


@app.task(name="body")
def body(numbers, members):
    if len(numbers) != members:
        raise ValueError(f"the body of a chord got {len(numbers)} results, want {members}")
    mark(b"body", numbers[0])


def send_one(kind, number, size):
    if kind == "single":
        single.delay(number)
    elif kind == "slow":
        slow.delay(number)
    elif kind == "fan":
        group(nap.s(i) for i in range(size)).apply_async()
    elif kind == "chain":
        chain(step.s(number), *[step.s() for _ in range(size - 1)]).apply_async()
    elif kind == "chord":
        chord([member.s(number) for _ in range(size)])(body.s(size))
    else:
        raise ValueError(kind)


def send():
    for line in sys.stdin:
        kind, number, size = line.split()
        began = time.time_ns() // 1000
        send_one(kind, int(number), int(size))
        print(began, flush=True)


def timed(work):
    began, before = time.monotonic(), time.process_time_ns()
    work()
    print(time.monotonic() - began, (time.process_time_ns() - before) // 1000)


def enqueue(count):
    for number in range(count):
        single.delay(number)


def bulk(count):
    for first in range(0, count, BATCH):
        group(single.s(number) for number in range(first, min(first + BATCH, count))).apply_async()


@worker_ready.connect
def ready(**_):
    os.write(1, b"ready\n")  # Celery redirects print to its log


def main():
    command, *rest = sys.argv[1:]
    if command == "version":
        print(celery.__version__)
    elif command == "work":
        pool = "prefork" if int(rest[0]) <= PROCESSES else "threads"
        app.worker_main(["worker", "--pool", pool, "--concurrency", rest[0], "--loglevel", "WARNING"])
    elif command == "send":
        send()
    elif command == "enqueue":
        timed(lambda: enqueue(int(rest[0])))
    elif command == "bulk":
        timed(lambda: bulk(int(rest[0])))


if __name__ == "__main__":
    main()
