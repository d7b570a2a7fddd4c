//! Random payloads against the oracle: what they compute stays the same when they are lifted, emitted and lifted
//! again.

use super::tests::{add, branch, copy, neg, payload_of, scan, size};
use crate::payload::machine::{Outcome, run_module, run_payload};
use crate::payload::{Instruction, Payload};
use crate::{Limits, emit, lift};

/// A stream of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }

    /// A slot that holds f32[2, 2] wherever it is set: the input, the buffer or a temporary.
    fn matrix(&mut self) -> u32 {
        [1, 4, 5, 6, 7, 8, 9, 10][self.below(8) as usize]
    }

    fn chain(&mut self, chains: &mut Vec<Vec<Instruction>>, depth: u32, in_loop: bool) -> Vec<Instruction> {
        let mut chain = Vec::new();
        for _ in 0..2 + self.below(6) {
            let (a, b) = (self.matrix(), self.matrix());
            // Never the input: the slots of inputs stay as they are in what exporters write, and in what we emit.
            let out = [4, 5, 6, 7, 8, 9, 10][self.below(7) as usize];
            match self.below(if depth < 3 { 12 } else { 8 }) {
                0..3 => chain.push(add(a, b, out)),
                3..5 => chain.push(neg(a, out)),
                5..7 => chain.push(copy(a, out)),
                // A loop carries no integers, so its body sets none that is read elsewhere.
                7 => chain.push(size(a, if in_loop { 3 } else { self.below(3) })),
                8..10 => {
                    let (then, other) =
                        (self.body(chains, depth, in_loop), self.body(chains, depth, in_loop));
                    chain.push(branch(self.below(3), then, other));
                }
                _ => {
                    // Each loop has an output slot of its own: it holds another shape afterwards.
                    let output = 11 + chains.len() as u32 % 14;
                    let body = self.body(chains, depth, true);
                    chains[body as usize].push(neg(out, output));
                    let sliced = 5 + self.below(6);
                    let outputs: &[u32] = if self.below(4) == 0 { &[] } else { &[output] };
                    chain.push(scan(2, sliced, &[a], body, outputs));
                }
            }
        }
        chain
    }

    fn body(&mut self, chains: &mut Vec<Vec<Instruction>>, depth: u32, in_loop: bool) -> u32 {
        let chain = self.chain(chains, depth + 1, in_loop);
        chains.push(chain);
        chains.len() as u32 - 1
    }

    fn payload(&mut self) -> Payload {
        let mut chains = vec![Vec::new()];
        let mut main: Vec<Instruction> = (0..3).map(|index| size(1, index)).collect();
        main.extend((5..11).filter(|_| self.below(30) > 0).map(|slot| neg(1, slot)).collect::<Vec<_>>());
        let rest = self.chain(&mut chains, 0, false);
        main.extend(rest);
        main.push(copy(self.matrix(), 3));
        chains[0] = main;
        payload_of(chains)
    }
}

#[test]
fn random_programs_keep_their_meaning() {
    let count = if cfg!(miri) { 2 } else { 1000 };
    let mut accepted = 0;
    for seed in 0..count {
        let payload = Random(seed).payload();
        let Ok(mut module) = lift(&payload, "random", &Limits::default()) else { continue };
        accepted += 1;
        let want: Vec<Outcome> = (0..3).map(|run| run_payload(&payload, run)).collect();
        // A body may copy what is overwritten before anybody reads it; then the branch before it hands on what
        // nobody needs, and the branch before that one too: each round finds out about one of them.
        let rounds = (0..10).position(|round| {
            let emitted = emit(&module).unwrap();
            emitted.check(&Limits::default()).unwrap();
            for (run, want) in (0..).zip(&want) {
                let place = || format!("seed {seed}, round {round}\n{}\n{module}", listing(&payload));
                assert_eq!(want, &run_module(&module, run), "lift: {}", place());
                assert_eq!(want, &run_payload(&emitted, run), "emit: {}\n{}", place(), listing(&emitted));
            }
            let again = lift(&emitted, "random", &Limits::default()).unwrap();
            let settled = module == again;
            module = again;
            settled
        });
        assert!(rounds.is_some(), "seed {seed} never settles\n{}\n{module}", listing(&payload));
    }
    assert!(accepted * 2 > count, "only {accepted} of {count} random programs make sense");
}

/// A payload as text, for reading failures.
fn listing(payload: &Payload) -> String {
    let chains = payload.instruction_chains.iter().enumerate();
    let lines = chains.flat_map(|(chain, instructions)| {
        let lines = instructions.instructions.iter().enumerate();
        lines.map(move |(index, one)| format!("{chain} #{index} {:?} -> {:?}", one.op, one.results))
    });
    lines.collect::<Vec<_>>().join("\n")
}
