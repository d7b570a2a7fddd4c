//! The pool under load, and its protocol under every schedule (`RUSTFLAGS="--cfg loom" cargo test --release -p
//! pteron-pool --lib protocol::short`, and the same with `protocol::long`).

use super::*;

#[cfg(not(all(loom, test)))]
mod load {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// A size of a test: the first, or the second under Miri, which interprets every step.
    const fn sized<T: Copy>(full: T, under_miri: T) -> T {
        if cfg!(miri) { under_miri } else { full }
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 3, 17, sized(1000, 60)] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads}, {tasks}");
            }
        }
    }

    #[test]
    fn many_short_jobs_of_many_callers() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            // More callers than slots, so that some run alone.
            for caller in 0..SLOTS + 3 {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..sized(500, 4) {
                        let sum = AtomicUsize::new(0);
                        pool.run(7, &|i| {
                            sum.fetch_add(i + round, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 21 + 7 * round, "caller {caller}");
                        if round % sized(100, 2) == 0 {
                            // Long enough for the workers to fall asleep.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_task_may_run_tasks() {
        let pool = Pool::new(2);
        let count = AtomicUsize::new(0);
        pool.run(4, &|_| {
            pool.run(5, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.into_inner(), 20);
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_tasks_ran() {
        let pool = Pool::new(2);
        for bad in [0, 5, 9] {
            let count = AtomicUsize::new(0);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(10, &|i| {
                    count.fetch_add(1, Ordering::Relaxed);
                    assert!(i != bad, "task {bad} gives up");
                });
            }));
            let payload = result.unwrap_err();
            assert!(payload.downcast_ref::<String>().unwrap().contains("gives up"));
            assert_eq!(count.into_inner(), 10);
        }
        // The pool still works.
        pool.run(3, &|_| {});
    }

    #[test]
    fn workers_share_a_job() {
        // Each task waits for the other one, so both threads must take part.
        let pool = Pool::new(2);
        for _ in 0..20 {
            let arrived = AtomicUsize::new(0);
            pool.run(2, &|_| {
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < 2 {
                    std::thread::yield_now();
                }
            });
        }
    }
}

/// Loom runs a body under every schedule that its bound on preemptions allows, and fails on a race, a deadlock or a
/// broken assertion. `short` takes seconds, for every change; `long` takes minutes, for changes of the pool.
#[cfg(all(loom, test))]
mod protocol {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// Every schedule with so many preemptions: more than a few threads cannot be explored whole.
    fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(body);
    }

    fn counted(pool: &Pool, tasks: usize) {
        let count = Arc::new(AtomicUsize::new(0));
        pool.run(tasks, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        // Relaxed: `run` itself must order what the tasks did before what follows it.
        assert_eq!(count.load(Ordering::Relaxed), tasks);
    }

    fn one_job() {
        let pool = Pool::new(2);
        counted(&pool, 2);
    }

    fn two_jobs() {
        let pool = Pool::new(2);
        counted(&pool, 2);
        counted(&pool, 2);
    }

    fn two_callers() {
        let pool = Arc::new(Pool::new(2));
        let other = pool.clone();
        let caller = loom::thread::spawn(move || counted(&other, 2));
        counted(&pool, 2);
        caller.join().unwrap();
    }

    mod short {
        use super::*;

        #[test]
        fn no_job_is_slept_through_and_no_task_outlives_its_call() {
            model(2, one_job);
        }

        #[test]
        fn a_slot_can_be_used_again_at_once() {
            model(1, two_jobs);
        }

        #[test]
        fn two_callers_share_one_worker() {
            // Three threads: with a single preemption it would be minutes.
            model(0, two_callers);
        }
    }

    mod long {
        use super::*;

        #[test]
        fn no_job_is_slept_through_and_no_task_outlives_its_call() {
            model(3, one_job);
        }

        #[test]
        fn a_slot_can_be_used_again_at_once() {
            model(2, two_jobs);
        }

        #[test]
        fn two_callers_share_one_worker() {
            model(2, two_callers);
        }
    }
}
