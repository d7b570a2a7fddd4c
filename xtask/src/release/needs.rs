//! What a binary asks of the machine that runs it: the libraries that an ELF file names, and the newest glibc among its symbols.

/// In words, for a person.
pub(super) fn of(binary: &[u8]) -> String {
    match libraries(binary) {
        Some(names) if names.is_empty() => "no library".to_owned(),
        Some(names) => match newest_glibc(binary) {
            Some((major, minor)) => format!("{}, glibc {major}.{minor} or newer", names.join(", ")),
            None => names.join(", "),
        },
        None => "what cannot be told here: it is no ELF file of 64 bits".to_owned(),
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let number = bytes.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    usize::try_from(number).ok()
}

/// The names that the dynamic section asks for; nothing where the file is none that is read.
fn libraries(binary: &[u8]) -> Option<Vec<String>> {
    // Little-endian files of 64 bits, which all our targets have.
    if binary.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (first, size, count) = (number(binary, 0x20, 8)?, number(binary, 0x36, 2)?, number(binary, 0x38, 2)?);
    let headers: Vec<usize> = (0..count).filter_map(|at| first.checked_add(at * size)).collect();
    let of_kind =
        |kind: usize| headers.iter().copied().filter(move |&at| number(binary, at, 4) == Some(kind));
    let (mut names, mut table) = (Vec::new(), None);
    // Segment 2 holds pairs of tag and value: 1 names a library by its place in the table that 5 points to.
    for segment in of_kind(2) {
        let (start, len) = (number(binary, segment + 8, 8)?, number(binary, segment + 0x20, 8)?);
        for at in (start..start.checked_add(len)?).step_by(16) {
            match (number(binary, at, 8)?, number(binary, at + 8, 8)?) {
                (0, _) => break,
                (1, place) => names.push(place),
                (5, address) => table = Some(address),
                _ => {}
            }
        }
    }
    let Some(address) = table else { return Some(Vec::new()) };
    // Addresses are places in the file by way of the loaded segments (1).
    let in_file = of_kind(1).find_map(|segment| {
        let (offset, base) = (number(binary, segment + 8, 8)?, number(binary, segment + 0x10, 8)?);
        let within = address.checked_sub(base)?;
        (within < number(binary, segment + 0x20, 8)?).then_some(offset + within)
    })?;
    let name = |place: &usize| {
        let text = binary.get(in_file.checked_add(*place)?..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    };
    names.iter().map(name).collect()
}

/// The newest version of glibc's symbols that the file names.
fn newest_glibc(binary: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let places = binary.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let version = |at: usize| {
        let text: String = binary[at + MARK.len()..]
            .iter()
            .take(8)
            .take_while(|&&byte| byte != 0)
            .map(|&byte| char::from(byte))
            .collect();
        let (major, rest) = text.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    places.filter_map(|(at, _)| version(at)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    fn this_test_needs_the_c_library() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let said = of(&own);
        assert!(said.contains("libc.so.6") && said.contains("glibc 2."), "{said}");
    }

    #[test]
    fn files_of_other_kinds_are_no_reason_to_fail() {
        assert!(of(b"MZ").contains("cannot be told"));
        let mut cut = b"\x7fELF\x02\x01".to_vec();
        cut.resize(64, 0xff);
        assert!(!of(&cut).is_empty());
        assert_eq!(newest_glibc(b"GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE"), Some((2, 34)));
    }
}
