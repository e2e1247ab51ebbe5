//! The units that a greedy caller gets over time, drawn with block characters.

use tidegate_simulate::text::number;

use std::time::Duration;

use super::greedy::Admission;
use crate::time_text::length;

const ROWS: usize = 7;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the units admitted so far, over a time in microseconds, as lines of at most `columns` columns.
pub(super) fn drawn(admissions: &[Admission], time: u64, columns: usize) -> Vec<String> {
    let total: u64 = admissions.iter().map(|admission| admission.units).sum();
    if total == 0 || time == 0 {
        return Vec::new();
    }
    let label = number(total);
    let margin = label.chars().count() + 2;
    let columns = columns.saturating_sub(margin + 4).clamp(20, 72);
    let levels = levels(admissions, time, total, columns);
    let mut lines: Vec<String> = (0..ROWS)
        .rev()
        .map(|row| {
            let text: String = levels.iter().map(|level| EIGHTHS[level.saturating_sub(row * 8).min(8)]).collect();
            let label = if row + 1 == ROWS { label.as_str() } else { "" };
            format!("{label:>margin$} ┤{}", text.trim_end())
        })
        .collect();
    let end = length(Duration::from_micros(time));
    lines.push(format!("{:>margin$} └{}", 0, "─".repeat(columns)));
    lines.push(format!("{:>margin$}  0{end:>width$}", "", width = columns - 1));
    lines
}

/// For each column the eighths of rows that it fills, from the units admitted by its end.
fn levels(admissions: &[Admission], time: u64, total: u64, columns: usize) -> Vec<usize> {
    let mut admissions = admissions.iter().peekable();
    let mut so_far = 0;
    let full = (ROWS * 8) as u128;
    (1..=columns as u128)
        .map(|column| {
            let end = u128::from(time) * column / columns as u128;
            while let Some(admission) = admissions.next_if(|admission| u128::from(admission.at) < end) {
                so_far += admission.units;
            }
            // The smallest number above 0 is still visible.
            ((u128::from(so_far) * full / u128::from(total)) as usize).max(usize::from(so_far > 0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_the_middle_fills_the_right_half() {
        let steps = [Admission { at: 0, units: 1 }, Admission { at: 500_000, units: 1 }];
        let lines = drawn(&steps, 1_000_000, 40);
        assert_eq!(lines.len(), ROWS + 2);
        let columns = lines[0].chars().filter(|c| *c == '█').count();
        let all = lines[ROWS - 1].chars().filter(|c| *c == '█').count();
        assert!(columns * 2 == all || columns * 2 == all + 1, "{columns} of {all}\n{}", lines.join("\n"));
        assert!(drawn(&[], 1_000_000, 40).is_empty());
    }
}
