//! Packed weights: programs against the same weights unpacked, and what packing costs in accuracy.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod small;

use std::ops::Range;
use std::sync::Arc;

use pteron_format::Limits;
use pteron_format::pte::Pte;
use pteron_models::architectures::Llama;
use pteron_models::{
    Form, Handling, ModelOptions, Packing, Quantization, RandomWeights, Wanted, WeightError, WeightReport,
    WeightSource,
};
use pteron_tensor::DType;
use pteron_tensor::quant::packed;
use small::*;

/// The weights of a packed program, unpacked; everything else as it was.
struct Unpacked {
    pte: Pte,
    packing: Packing,
    floats: RandomWeights,
}

impl WeightSource for Unpacked {
    fn form(&self, _: Wanted<'_>) -> Result<Form, WeightError> {
        Ok(Form::Floats)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let [_, columns] = wanted.shape else { return self.floats.read(wanted, elements, out) };
        let stem = wanted.name.strip_suffix(".weight").unwrap();
        let part = |suffix: &str| self.pte.named(&format!("{stem}.{suffix}"));
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let scheme = self.packing.scheme();
        let (words, groups) = (packed::words(*columns, scheme.bits()).unwrap(), columns / scheme.group());
        let codes = part("weight").unwrap();
        let codes: Vec<u32> = codes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let scales = part("scales").unwrap();
        let scales: Vec<f32> = match self.packing.scale_dtype() {
            DType::U8 => scales.iter().map(|&byte| scheme.scale(byte)).collect(),
            _ => floats(&scales),
        };
        let half = (1u32 << (scheme.bits() - 1)) as f32;
        let biases: Vec<f32> = match (self.packing.zero_points(), self.packing.is_centred()) {
            (true, _) => floats(&part("biases").unwrap()),
            (_, true) => scales.iter().map(|scale| -half * scale).collect(),
            _ => vec![],
        };
        let factor =
            if self.packing.has_tensor_scale() { floats(&part("tensor_scale").unwrap())[0] } else { 1.0 };
        let row_of = |at: usize| {
            let mut row = vec![0.0; *columns];
            let biases = if biases.is_empty() { &[] } else { &biases[at * groups..(at + 1) * groups] };
            let scales = &scales[at * groups..(at + 1) * groups];
            let codes = &codes[at * words..(at + 1) * words];
            scheme.dequantise(codes, scales, biases, &mut Vec::new(), &mut row).unwrap();
            row
        };
        let rows: Vec<f32> =
            (elements.start / columns..elements.end.div_ceil(*columns)).flat_map(row_of).collect();
        let skip = elements.start % columns;
        out.iter_mut().zip(&rows[skip..]).for_each(|(out, value)| *out = value * factor);
        Ok(())
    }
}

/// Every scheme, whole numbers with and without zero points, and the largest error that is stated of it.
fn packings() -> Vec<(Packing, f32)> {
    let stated = include_str!("../../../docs/quantization.md");
    let mut packings = Vec::new();
    for row in stated.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let packing: Packing = cells[0].trim_matches('`').parse().unwrap();
        let bound = cells[4].parse().unwrap();
        packings.push((packing, bound));
        let with_zero_points = packing.with_zero_points(true);
        packings.extend(with_zero_points.zero_points().then_some((with_zero_points, bound)));
    }
    assert_eq!(packings.len(), 15);
    packings
}

#[test]
fn packed_programs_compute_what_their_unpacked_weights_do() {
    let floats = RandomWeights::new(7);
    for (packing, _) in packings() {
        let packing = packing.with_scales(DType::F32);
        let sources: [Arc<dyn WeightSource>; 2] =
            [Arc::new(floats), Arc::new(RandomWeights::packed(7, packing))];
        for source in sources {
            for (name, architecture, decoder) in
                cases().into_iter().filter(|(name, ..)| name.len() > 8 || *name == "llama")
            {
                let options = ModelOptions { quantization: Quantization::of(packing), ..options(5) };
                let file = file(&build(architecture.as_ref(), source.clone(), options));
                let pte = Pte::read(file.clone(), &Limits::default()).unwrap();
                let unpacked = Unpacked { pte, packing, floats };
                let wanted = decoder.logits(&unpacked, &tokens());
                let difference = largest_difference(&run(file, 5), &wanted);
                assert!(difference < 5e-4, "{name}, {packing}: off by {difference}");
            }
        }
    }
}

#[test]
fn the_quantiser_keeps_each_weight_within_its_bound() {
    let floats = RandomWeights::new(3);
    let shape = [HIDDEN, 64];
    let name = "model.layers.0.mlp.down_proj.weight";
    let mut wanted = vec![0.0; HIDDEN * 64];
    floats.floats(Wanted::new(name, &shape), 0, &mut wanted).unwrap();
    let largest = wanted.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for (packing, bound) in packings() {
        let packing = packing.with_scales(DType::F32);
        let options = ModelOptions { quantization: Quantization::of(packing), ..options(5) };
        let pte = Pte::read(file(&build(&llama(), Arc::new(floats), options)), &Limits::default()).unwrap();
        let mut got = vec![0.0; wanted.len()];
        Unpacked { pte, packing, floats }.floats(Wanted::new(name, &shape), 0, &mut got).unwrap();
        let difference = got.iter().zip(&wanted).fold(0.0f32, |d, (a, b)| d.max((a - b).abs()));
        assert!(difference <= bound * largest, "{packing}: off by {difference} of {largest}");
    }
}

#[test]
fn smaller_groups_of_the_same_codes_compute_the_same() {
    for name in ["4w", "6w"] {
        for zero_points in [false, true] {
            let packing: Packing = name.parse().unwrap();
            let packing =
                packing.with_group(64).unwrap().with_zero_points(zero_points).with_scales(DType::F32);
            let source: Arc<dyn WeightSource> = Arc::new(RandomWeights::packed(9, packing));
            let architecture = Llama { hidden_size: 64, ..llama() };
            let logits = |group: Option<usize>| {
                let quantization = Quantization { group, ..Quantization::default() };
                let options = ModelOptions { quantization, ..options(5) };
                let model = build(&architecture, source.clone(), options);
                let file = file(&model);
                let kept = |report: &WeightReport| match report.handling {
                    Handling::Kept(packing) => packing.scheme().group() == group.unwrap_or(64),
                    Handling::Quantised(..) => false,
                };
                assert!(!model.reports().is_empty() && model.reports().iter().all(kept));
                (file.len(), run(file, 5))
            };
            let ((large, wanted), (small, got)) = (logits(None), logits(Some(32)));
            assert!(small > large, "{packing}: scales are said twice");
            assert_eq!(got, wanted, "{packing}");
        }
    }
}
