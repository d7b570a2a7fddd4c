//! Rows, and whole products, that are computed together give what each gives alone.

use super::*;

/// A weight with its input prepared, and what it gives alone.
struct Alone {
    linear: QuantLinear,
    prepared: Aligned,
    /// bf16.
    out: Vec<u16>,
}

fn alone(weight: QuantWeight, pool: &Pool, (path, precision): (Path, Precision), rows: usize) -> Alone {
    let (n, k) = (weight.n(), weight.k());
    let linear = QuantLinear::new(weight, DType::BF16, path, precision).unwrap();
    let mut noise = Noise(rows as u64);
    let x: Vec<f32> = (0..rows * k).map(|_| noise.float()).collect();
    let mut aligned = Aligned::new(rows * k * 2);
    aligned.bytes().copy_from_slice(&bytes_of(DType::BF16, &x));
    let x = Rows::dense(aligned.bytes(), DType::BF16, rows, k).unwrap();
    let mut prepared = Aligned::new(linear.input_bytes(rows));
    linear.prepare_input(pool, x, prepared.bytes()).unwrap();
    let mut out = vec![0; rows * n];
    let bytes = bytemuck::cast_slice_mut(&mut out);
    linear.run(pool, prepared.bytes(), RowsMut::dense(bytes, DType::BF16, rows, n).unwrap()).unwrap();
    Alone { linear, prepared, out }
}

/// The bits of a product's first `count` rows of `x`, as f32.
pub(super) fn bits_of(linear: &QuantLinear, pool: &Pool, x: &[f32], count: usize) -> Vec<u32> {
    let (n, k) = (linear.weight().n(), linear.weight().k());
    let mut aligned = Aligned::new(count * k * 4);
    aligned.bytes().copy_from_slice(&bytes_of(DType::F32, &x[..count * k]));
    let x = Rows::dense(aligned.bytes(), DType::F32, count, k).unwrap();
    let mut prepared = Aligned::new(linear.input_bytes(count));
    linear.prepare_input(pool, x, prepared.bytes()).unwrap();
    let mut out = vec![0u32; count * n];
    let rows = RowsMut::dense(bytemuck::cast_slice_mut(&mut out), DType::F32, count, n).unwrap();
    linear.run(pool, prepared.bytes(), rows).unwrap();
    out
}

/// Short, middling and long rows of the weight, and rows of activations in blocks of every size: what is computed beside a
/// row does not change a bit of it, where the kernel says so and wherever it was asked for.
#[test]
fn a_row_is_the_same_alone_and_in_a_block() {
    let pool = Pool::new(2);
    for path in paths() {
        for (at, scheme) in SCHEMES.into_iter().enumerate().step_by(sized(1, 6)) {
            for precision in [Precision::Exact, Precision::Fast] {
                let lengths = sized([384, [2176, 8320][at % 2]], [scheme.2.max(32) as usize; 2]);
                for &k in &lengths[sized(0, 1)..] {
                    let weight = case(scheme, DType::BF16, 1, sized(39, 2), k).weight;
                    let linear = QuantLinear::new(weight, DType::F32, path, precision).unwrap();
                    let arranged = linear.clone().arranged();
                    for linear in [linear, arranged] {
                        let invariant = linear.clone().invariant();
                        let counts = sized(&[2, 3, 4, 5, 6, 7, 8, 9, 13, 17][..], &[3]);
                        let mut noise = Noise(at as u64);
                        let x: Vec<f32> = (0..counts[counts.len() - 1] * k).map(|_| noise.float()).collect();
                        let alone: Vec<u32> =
                            x.chunks(k).flat_map(|row| bits_of(&invariant, &pool, row, 1)).collect();
                        let what = format!("{path} {scheme:?} {precision:?} {k}");
                        assert!(linear.is_invariant_for(1), "{what}");
                        for &count in counts {
                            assert!(invariant.is_invariant_for(count));
                            let same = &alone[..count * linear.weight().n()];
                            assert!(bits_of(&invariant, &pool, &x, count) == *same, "{what}: {count} rows");
                            if linear.is_invariant_for(count) {
                                assert!(bits_of(&linear, &pool, &x, count) == *same, "{what}: {count} rows");
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Matrix tiles add up the same whole numbers as vectors do, and scales meet them in the same order.
#[test]
#[cfg(target_arch = "x86_64")]
#[allow(clippy::print_stdout)] // what is not run is said
fn panels_on_tiles_give_what_panels_of_vectors_give() {
    if !Path::Amx.is_available() {
        println!("not run: amx, which this machine lacks");
        return;
    }
    let pool = Pool::new(2);
    for (at, scheme) in SCHEMES.into_iter().enumerate() {
        let groups = [1, 5, 19][at % 3];
        let (n, k) = (33 + at, groups * scheme.2.max(32) as usize);
        let weight = case(scheme, [DType::BF16, DType::F32, DType::F16][at % 3], 1, n, k).weight;
        let mut noise = Noise(at as u64);
        let x: Vec<f32> = (0..36 * k).map(|_| noise.float()).collect();
        let [tiles, vectors] = [Path::Amx, Path::Avx512]
            .map(|path| QuantLinear::new(weight.clone(), DType::F32, path, Precision::Fast).unwrap());
        let arranged = tiles.clone().arranged();
        for count in [8, 9, 12, 13, 16, 17, 20, 33, 36] {
            assert!(!tiles.uses_tiles(count), "the tiles of long prompts, which round otherwise");
            let same = bits_of(&tiles, &pool, &x, count) == bits_of(&vectors, &pool, &x, count);
            assert!(same, "{scheme:?} {n}x{k}: {count} rows");
            let same = bits_of(&arranged, &pool, &x, count) == bits_of(&vectors, &pool, &x, count);
            assert!(same, "{scheme:?} {n}x{k}: {count} rows, arranged");
        }
    }
}

/// Several products in one region, some of which want their input in another form.
#[test]
fn joined_products_give_what_each_gives_alone() {
    let pool = Pool::new(3);
    for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
        for precision in [Precision::Exact, Precision::Fast] {
            for rows in [1, 3, 9] {
                let weight = |n: usize| case((Mode::Affine, 4, 32), DType::BF16, 1, n, sized(256, 32)).weight;
                let mut parts: Vec<Alone> = sized([1000, 17, 1, 333, 600], [60, 17, 1, 33, 20])
                    .map(|n| alone(weight(n), &pool, (path, precision), rows))
                    .into_iter()
                    .collect();
                let mut outs: Vec<Vec<u16>> = parts.iter().map(|part| vec![0; part.out.len()]).collect();
                let joined = parts.iter_mut().zip(&mut outs).map(|(part, out)| {
                    let (out, n) = (bytemuck::cast_slice_mut(out), part.linear.weight().n());
                    let out = RowsMut::dense(out, DType::BF16, rows, n).unwrap();
                    Joined { linear: &part.linear, prepared: part.prepared.bytes(), out }
                });
                run_joined(&pool, joined).unwrap();
                for (part, out) in parts.iter().zip(&outs) {
                    assert!(
                        part.out == *out,
                        "{path} {precision:?} {rows} rows, {}",
                        part.linear.weight().n()
                    );
                }
            }
        }
    }
}

/// Every column is finished once, after both products have it.
#[test]
fn paired_products_are_finished_column_by_column() {
    const COLUMNS: usize = sized(2000, 50);
    let pool = Pool::new(3);
    for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
        for rows in [1, 9] {
            let weight = |k: usize| case((Mode::Affine, 4, 32), DType::BF16, 1, COLUMNS, k).weight;
            let mut parts =
                sized([256, 512], [32, 64]).map(|k| alone(weight(k), &pool, (path, Precision::Exact), rows));
            let mut outs = [vec![0u16; rows * COLUMNS], vec![0; rows * COLUMNS]];
            let finished = std::sync::Mutex::new(vec![0; COLUMNS]);
            let [a, b] = &mut parts;
            let [to_a, to_b] = &mut outs;
            let joined = [(a, to_a), (b, to_b)].map(|(part, out)| {
                let out = bytemuck::cast_slice_mut(out);
                let out = RowsMut::dense(out, DType::BF16, rows, COLUMNS).unwrap();
                Joined { linear: &part.linear, prepared: part.prepared.bytes(), out }
            });
            run_paired(&pool, joined, &|columns| {
                finished.lock().unwrap()[columns.unwrap_or(0..COLUMNS)]
                    .iter_mut()
                    .for_each(|times| *times += 1);
            })
            .unwrap();
            assert!(finished.into_inner().unwrap().iter().all(|&times| times == 1), "{path}, {rows} rows");
            assert!(parts.iter().zip(&outs).all(|(part, out)| part.out == *out), "{path}, {rows} rows");
        }
    }
}
