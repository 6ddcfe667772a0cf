//! Mutex, semaphore, event, channels.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::sync::{Event, Mutex, Semaphore, channel, oneshot};
use cops::task::{self, Priority, yield_now};
use futures_util::future::join_all;

use crate::harness::{Outcome, soon};
use crate::{check, check_equal, tests};

tests! { sync:
    mutex_excludes,
    semaphore_limits,
    event_reaches_all,
    channel_is_bounded_and_ordered,
    channel_ends,
    many_producers_and_consumers,
    oneshot_once,
}

async fn mutex_excludes() -> Outcome {
    task::alloc_cpu(3)?;
    let total = Arc::new(Mutex::new(0u64));
    let workers: Vec<_> = (0..50)
        .map(|_| {
            let total = total.clone();
            task::spawn_join(
                async move {
                    for _ in 0..20 {
                        let mut guard = total.lock().await;
                        let value = *guard;
                        // Other coroutines run here, and must not enter the critical section.
                        yield_now().await;
                        *guard = value + 1;
                    }
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for worker in soon("50 coroutines", join_all(workers)).await? {
        worker?;
    }
    check_equal!(*total.lock().await, 1000, "count under the mutex");
    Ok(())
}

async fn semaphore_limits() -> Outcome {
    let semaphore = Arc::new(Semaphore::new(3));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers: Vec<_> = (0..30)
        .map(|_| {
            let (semaphore, inside, most) = (semaphore.clone(), inside.clone(), most.clone());
            task::spawn_join(
                async move {
                    let _permit = semaphore.acquire(1).await;
                    most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                    yield_now().await;
                    inside.fetch_sub(1, Relaxed);
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for worker in soon("30 coroutines", join_all(workers)).await? {
        worker?;
    }
    check_equal!(most.load(Relaxed), 3, "most that were inside");
    check_equal!(semaphore.available(), 3, "permits at the end");
    Ok(())
}

async fn event_reaches_all() -> Outcome {
    let event = Arc::new(Event::new());
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let event = event.clone();
            task::spawn_join(async move { event.wait().await }, Priority::DEFAULT)
        })
        .collect();
    yield_now().await;
    check!(waiters.iter().all(|waiter| !waiter.is_finished()), "a waiter did not wait");
    event.set();
    for waiter in soon("20 coroutines", join_all(waiters)).await? {
        waiter?;
    }
    soon("what has happened", event.wait()).await
}

async fn channel_is_bounded_and_ordered() -> Outcome {
    let (sender, receiver) = channel(4);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    task::spawn(
        async move {
            for value in 0..100 {
                if sender.send(value).await.is_err() {
                    return;
                }
                counted.fetch_add(1, Relaxed);
            }
        },
        Priority::MOST_URGENT,
    );
    yield_now().await;
    check_equal!(sent.load(Relaxed), 4, "sent into a channel for four");
    for value in 0..100 {
        check_equal!(soon("a value", receiver.receive()).await?, Some(value), "value");
    }
    check_equal!(soon("the end", receiver.receive()).await?, None, "value after the last");
    Ok(())
}

async fn channel_ends() -> Outcome {
    let (sender, receiver) = channel(2);
    check!(sender.send(1).await.is_ok(), "no receiver");
    drop(receiver);
    check!(sender.send(2).await.is_err(), "sent without a receiver");
    let (sender, receiver) = channel(2);
    check!(sender.send(3).await.is_ok(), "no receiver");
    drop(sender);
    check_equal!(receiver.receive().await, Some(3), "what was sent before the end");
    check_equal!(receiver.receive().await, None, "the end");
    Ok(())
}

async fn many_producers_and_consumers() -> Outcome {
    task::alloc_cpu(3)?;
    let (sender, receiver) = channel(8);
    for producer in 0..10u64 {
        let sender = sender.clone();
        task::spawn(
            async move {
                for value in 0..200 {
                    let _ = sender.send(producer * 1000 + value).await;
                }
            },
            Priority::DEFAULT,
        );
    }
    drop(sender);
    let consumers: Vec<_> = (0..5)
        .map(|_| {
            let receiver = receiver.clone();
            task::spawn_join(
                async move {
                    let mut got = Vec::new();
                    while let Some(value) = receiver.receive().await {
                        got.push(value);
                    }
                    got
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    let mut all = Vec::new();
    for got in soon("consumers", join_all(consumers)).await? {
        let got = got?;
        for producer in 0..10u64 {
            let of_one: Vec<u64> =
                got.iter().copied().filter(|value| value / 1000 == producer).collect();
            check!(of_one.is_sorted(), "values of producer {producer} out of order");
        }
        all.extend(got);
    }
    all.sort_unstable();
    let expected: Vec<u64> =
        (0..10).flat_map(|producer| (0..200).map(move |value| producer * 1000 + value)).collect();
    check!(all == expected, "{} values arrived instead of {}", all.len(), expected.len());
    Ok(())
}

async fn oneshot_once() -> Outcome {
    let (sender, mut receiver) = oneshot();
    task::spawn(
        async move {
            let _ = sender.send(42);
        },
        Priority::DEFAULT,
    );
    check_equal!(soon("the value", receiver.receive()).await?, Some(42), "value");
    let (sender, mut receiver) = oneshot::<u8>();
    drop(sender);
    check_equal!(
        soon("the end", receiver.receive()).await?,
        None,
        "value of a sender that is gone"
    );
    Ok(())
}
