//! What is measured, as Prometheus reads it: what waits and runs, tokens in and out, and how long people wait.

use crate::models::Model;
use pteron_llm::Stats;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// Upper ends of the first bucket to the last, in seconds.
const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

#[derive(Clone, Copy, Debug, Default)]
struct Histogram {
    counts: [u64; BUCKETS.len()],
    sum: f64,
    count: u64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        if let Some(at) = BUCKETS.iter().position(|&end| seconds <= end) {
            self.counts[at] += 1;
        }
        self.sum += seconds;
        self.count += 1;
    }

    fn write(&self, name: &str, help: &str, out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        for (end, count) in BUCKETS.iter().zip(self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{le=\"{end}\"}} {below}");
        }
        let Histogram { sum, count, .. } = self;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }
}

/// How long answers took.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Times>);

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    first: Histogram,
    between: Histogram,
    whole: Histogram,
}

impl Metrics {
    /// Counts an answer.
    pub(crate) fn note(&self, stats: &Stats) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.whole.add((stats.end - stats.start) / 1e3);
        if let Some(first) = stats.time_to_first_token() {
            times.first.add(first / 1e3);
            if stats.generated_tokens > 1 {
                let rest = (stats.generated_tokens - 1) as f64;
                times.between.add((stats.end - stats.first_token) / 1e3 / rest);
            }
        }
    }

    /// All of it as text.
    pub(crate) fn render(&self, models: &[Arc<Model>]) -> String {
        let mut out = String::new();
        let counted = |model: &Arc<Model>| {
            let (name, counts, memory) = (label(&model.name), model.handle.counts(), model.handle.memory());
            (name, counts, counts.reserved_bytes as f64 / memory.max(1) as f64)
        };
        let counts: Vec<_> = models.iter().map(counted).collect();
        let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&pteron_llm::Counts) -> f64| {
            let _ = writeln!(out, "# HELP pteron:{name} {help}\n# TYPE pteron:{name} {kind}");
            for (model, counts, _) in &counts {
                let _ = writeln!(out, "pteron:{name}{{model_name=\"{model}\"}} {}", value(counts));
            }
        };
        family("num_requests_waiting", "gauge", "Requests in the queue.", &|counts| counts.waiting as f64);
        family("num_requests_running", "gauge", "Answers under way.", &|counts| counts.running as f64);
        family("kept_sessions", "gauge", "Sessions kept for their prefix.", &|counts| counts.kept as f64);
        family("reserved_cache_bytes", "gauge", "Bytes set aside for answers.", &|counts| {
            counts.reserved_bytes as f64
        });
        family("requests_total", "counter", "Requests taken up.", &|counts| counts.requests as f64);
        family("prompt_tokens_total", "counter", "Tokens of prompts.", &|counts| counts.prompt_tokens as f64);
        family("prefix_cache_queries_total", "counter", "Tokens looked up in caches.", &|counts| {
            counts.prompt_tokens as f64
        });
        family("prefix_cache_hits_total", "counter", "Tokens found in caches.", &|counts| {
            counts.cached_tokens as f64
        });
        family("generation_tokens_total", "counter", "Tokens of answers.", &|counts| {
            counts.generated_tokens as f64
        });
        family("requests_cancelled_total", "counter", "Answers given up.", &|counts| counts.cancelled as f64);
        family("requests_failed_total", "counter", "Answers that failed.", &|counts| counts.failed as f64);
        let name = "pteron:kv_cache_usage_perc";
        let _ = writeln!(
            out,
            "# HELP {name} Part of the memory for answers that is set aside.\n# TYPE {name} gauge"
        );
        for (model, _, used) in &counts {
            let _ = writeln!(out, "{name}{{model_name=\"{model}\"}} {used}");
        }
        let times = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.first.write("pteron:time_to_first_token_seconds", "From request to first token.", &mut out);
        times.between.write("pteron:inter_token_latency_seconds", "Between two tokens.", &mut out);
        times.whole.write("pteron:e2e_request_latency_seconds", "From request to end.", &mut out);
        out
    }
}

/// A name inside quotes.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
