//! The timeline of a token, or of a run, as a picture: a self-contained SVG with a bar a step, coloured by kind, that any browser shows.

use super::figures::seconds;
use super::profile::{Kind, Profile};
use crate::aside::Aside;
use crate::failure::Failure;
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 1400.0;
const ROW: f64 = 26.0;
const LEFT: f64 = 190.0;
const TOP: f64 = 64.0;

/// Writes the picture to a file.
pub(crate) fn write(path: &Path, title: &str, profile: &Profile, kinds: &[Kind]) -> Result<(), Failure> {
    let picture = render(title, profile, kinds);
    Aside::write(path, |out| out.write_all(picture.as_bytes()))?.land()
}

/// The picture: a row for each kind, steps from left to right in time.
fn render(title: &str, profile: &Profile, kinds: &[Kind]) -> String {
    let height = TOP + ROW * kinds.len() as f64 + 30.0;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">"#
    );
    let _ = writeln!(svg, r##"<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"##);
    let total = seconds(profile.seconds);
    let heading = format!("{title}: one token, {total}, {} steps", profile.events.len());
    let _ = writeln!(svg, r#"<text x="12" y="26" font-size="16">{}</text>"#, escaped(&heading));
    let scale = (WIDTH - LEFT - 20.0) / profile.seconds.max(1e-9);
    for tick in 0..=10 {
        let time = profile.seconds * f64::from(tick) / 10.0;
        let x = LEFT + time * scale;
        let bottom = TOP + ROW * kinds.len() as f64;
        let _ =
            writeln!(svg, r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}" stroke="#dddddd"/>"##);
        let label = seconds(time);
        let _ = writeln!(
            svg,
            r##"<text x="{x:.1}" y="{}" text-anchor="middle" fill="#666666">{label}</text>"##,
            TOP - 8.0
        );
    }
    for (row, kind) in kinds.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let label = format!("{} x{} {:.1} %", kind.kind, kind.steps, kind.share * 100.0);
        let _ = writeln!(svg, r#"<text x="12" y="{:.1}">{}</text>"#, y + 17.0, escaped(&label));
        let hue = row * 137 % 360; // neighbours far apart on the wheel
        let _ = writeln!(svg, r#"<g fill="hsl({hue},60%,50%)">"#);
        for event in profile.events.iter().filter(|event| event.kind == kind.kind) {
            let (x, width) = (LEFT + event.start * scale, (event.seconds * scale).max(0.3));
            let (start, time) = (seconds(event.start), seconds(event.seconds));
            let note = format!("{} at {start}: {time}, {} bytes", event.kind, event.bytes);
            let _ = writeln!(
                svg,
                r#"<rect x="{x:.2}" y="{:.1}" width="{width:.2}" height="{}"><title>{}</title></rect>"#,
                y + 4.0,
                ROW - 8.0,
                escaped(&note)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::profile::Event;
    use super::*;

    #[test]
    fn a_bar_a_step_and_text_that_cannot_break_out() {
        let event = |kind, start| Event { kind, start, seconds: 0.001, bytes: 10 };
        let profile = Profile { events: vec![event("Add", 0.0), event("Sdpa", 0.001)], seconds: 0.002 };
        let svg = render("a<b>&", &profile, &profile.kinds(Some(1e9)));
        assert_eq!(svg.matches("<title>").count(), 2);
        assert!(svg.starts_with("<svg") && svg.contains("a&lt;b&gt;&amp;: one token, 2.0 ms, 2 steps"));
    }
}
