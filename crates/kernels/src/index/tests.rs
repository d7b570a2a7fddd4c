//! Picking and placing against plain loops.

use super::*;
use crate::trial::dense;

fn view<'a, T: bytemuck::Pod>(
    x: &'a [T],
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [isize],
) -> View<'a> {
    View::new(bytemuck::cast_slice(x), dtype, 0, sizes, strides).unwrap()
}

#[test]
fn rows_and_columns_are_taken() {
    let x: Vec<i32> = (0..24).collect();
    let sizes = [2, 3, 4];
    let strides = dense(&sizes);
    let indices = [2i64, -3, 1, 0, 0, 2];
    let (index_sizes, index_strides) = ([3, 2], dense(&[3, 2]));
    let pool = Pool::new(1);
    for axis in 0..3 {
        let limit = sizes[axis] as i64;
        let indices: Vec<i64> =
            indices.iter().map(|&i| i.rem_euclid(limit) - if i < 0 { limit } else { 0 }).collect();
        let mut to: Vec<usize> = sizes.to_vec();
        to.splice(axis..=axis, [3, 2]);
        let count: usize = to.iter().product();
        let mut out = vec![0i32; count];
        let steps = dense(&to);
        take(
            &pool,
            &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::I32, 0, &to, &steps).unwrap(),
            &view(&x, DType::I32, &sizes, &strides),
            &view(&indices, DType::I64, &index_sizes, &index_strides),
            axis,
        )
        .unwrap();
        let inner: usize = sizes[axis + 1..].iter().product();
        for (at, got) in out.into_iter().enumerate() {
            let (behind, index, before) = (at % inner, at / inner % 6, at / inner / 6);
            let index = indices[index].rem_euclid(limit) as usize;
            assert_eq!(got, x[(before * sizes[axis] + index) * inner + behind], "axis {axis} at {at}");
        }
    }
}

#[test]
fn indices_outside_change_nothing() {
    let mut out = [9u8; 4];
    let update = [1u8, 2];
    for bad in [4i32, -5, i32::MIN] {
        let indices = [0, bad];
        let mut to = ViewMut::new(&mut out, DType::U8, 0, &[4], &[1]).unwrap();
        let done = put(
            &Pool::new(1),
            &mut to,
            &view(&update, DType::U8, &[2], &[1]),
            &view(&indices, DType::I32, &[2], &[1]),
            0,
        );
        assert_eq!(done, Err(IndexError { index: bad.into(), size: 4 }));
    }
    assert_eq!(out, [9; 4]);
}

#[test]
fn the_last_of_equal_places_stays_and_sums_add_up() {
    let mut out = [0f32; 6];
    let update = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let indices = [1i32, -1, 1];
    let mut to = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &[3, 2], &[2, 1]).unwrap();
    let rows = view(&update, DType::F32, &[3, 2], &[2, 1]);
    put(&Pool::new(1), &mut to, &rows, &view(&indices, DType::I32, &[3], &[1]), 0).unwrap();
    assert_eq!(out, [0.0, 0.0, 5.0, 6.0, 3.0, 4.0]);
    let mut to = ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &[3, 2], &[2, 1]).unwrap();
    scatter_add(&mut to, &rows, &view(&indices, DType::I32, &[3, 2], &[1, 0]), 0).unwrap();
    assert_eq!(out, [0.0, 0.0, 11.0, 14.0, 6.0, 8.0]);
}

#[test]
fn along_an_axis_and_in_slices() {
    let x: Vec<u16> = (0..12).collect();
    let mut out = [0u16; 6];
    let indices = [3u32, 0, 1, 1, 2, 3];
    take_along_axis(
        &Pool::new(1),
        &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::U16, 0, &[3, 2], &[2, 1]).unwrap(),
        &view(&x, DType::U16, &[3, 4], &[4, 1]),
        &view(&indices, DType::U32, &[3, 2], &[2, 1]),
        1,
    )
    .unwrap();
    assert_eq!(out, [3, 0, 5, 5, 10, 11]);
    let mut out = [0u16; 8];
    let starts = [0i64, 2];
    let run = |out: &mut [u16], columns: &[i64]| {
        gather(
            &Pool::new(1),
            &mut ViewMut::new(bytemuck::cast_slice_mut(out), DType::U16, 0, &[2, 2, 2], &[4, 2, 1]).unwrap(),
            &view(&x, DType::U16, &[3, 4], &[4, 1]),
            &[view(columns, DType::I64, &[2], &[1])],
            &[1],
        )
    };
    run(&mut out, &starts).unwrap();
    assert_eq!(out, [0, 1, 4, 5, 2, 3, 6, 7]);
    assert_eq!(run(&mut out, &[0, 3]), Err(IndexError { index: 4, size: 4 }));
}

#[test]
fn a_slice_never_leaves_its_operand() {
    let x: Vec<u16> = (0..12).collect();
    let starts = [0i64];
    // A slice of [rows, 2] at a column of x, whose rows are three.
    let run = |rows: usize, axes: &[usize]| {
        let (mut out, sizes, strides) = (vec![0u16; 2 * rows], [1, rows, 2], dense(&[1, rows, 2]));
        let mut to =
            ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::U16, 0, &sizes, &strides).unwrap();
        let index = view(&starts, DType::I64, &[1], &[1]);
        let x = view(&x, DType::U16, &[3, 4], &[4, 1]);
        gather(&Pool::new(1), &mut to, &x, &vec![index; axes.len()], axes)
    };
    assert_eq!(run(3, &[1]), Ok(()));
    assert!(std::panic::catch_unwind(|| run(4, &[1])).is_err(), "more rows than there are");
    assert!(std::panic::catch_unwind(|| run(3, &[1, 1])).is_err(), "one axis moved twice");
}
