//! The drawing: a title, a legend, and for each policy a panel with what it was asked, what it admitted, and its limit.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::report::{NamedWorst, PolicyReport, Report, percent};
use super::super::table;
use super::super::timeline::{Bucket, Curve};
use super::super::traffic::moment::trimmed;
use super::axis::{TimeAxis, unit_label, unit_ticks};
use crate::number_text::number;

/// Units of the drawing in a pixel.
pub(super) const SCALE: u32 = 2;
const WIDTH: u32 = 2_000;
/// The height of the title and of what the traffic was …
const TITLE: u32 = 132;
/// … and of the legend below.
const LEGEND: u32 = 84;
const PANEL: u32 = 412;
const FOOT: u32 = 96;
const MARGIN: i32 = 48;
/// Where the curves begin.
const LEFT: u32 = 150;
/// The most points of a curve.
const COLUMNS: usize = 900;
/// A limit so many times above all curves is not drawn: they would be flat.
const FAR_ABOVE: f64 = 2.5;
/// The longest text of a line.
const MAX_TEXT: usize = 100;
/// How opaque the areas are.
const ASKED: f64 = 0.3;
const ADMITTED: f64 = 0.6;
const FONTS: &str = "Inter, system-ui, sans-serif";

/// The colours. They are of the palette of Okabe and Ito, which people with any colour vision can tell apart.
pub(super) struct Palette {
    background: RGBColor,
    text: RGBColor,
    muted: RGBColor,
    grid: RGBColor,
    asked: RGBColor,
    admitted: RGBColor,
    going: RGBColor,
}

impl Palette {
    pub(super) const LIGHT: Self = Self {
        background: RGBColor(255, 255, 255),
        text: RGBColor(31, 41, 51),
        muted: RGBColor(91, 102, 115),
        grid: RGBColor(225, 230, 235),
        asked: RGBColor(230, 159, 0),
        admitted: RGBColor(0, 114, 178),
        going: RGBColor(0, 158, 115),
    };
    pub(super) const DARK: Self = Self {
        background: RGBColor(22, 27, 34),
        text: RGBColor(230, 237, 243),
        muted: RGBColor(157, 167, 179),
        grid: RGBColor(48, 56, 66),
        asked: RGBColor(240, 178, 50),
        admitted: RGBColor(86, 180, 233),
        going: RGBColor(60, 200, 155),
    };

    const fn all(&self) -> [RGBColor; 7] {
        [self.background, self.text, self.muted, self.grid, self.asked, self.admitted, self.going]
    }

    /// Replaces the colours of a light drawing where the reader prefers dark ones.
    pub(super) fn style_for_dark() -> String {
        let mut style = "<style>@media (prefers-color-scheme: dark) {\n".to_owned();
        for (light, dark) in Self::LIGHT.all().iter().zip(Self::DARK.all()) {
            let (light, dark) = (hex(*light), hex(dark));
            style.push_str(&format!(
                "[fill=\"{light}\"] {{ fill: {dark} }} [stroke=\"{light}\"] {{ stroke: {dark} }}\n"
            ));
        }
        style + "}</style>\n"
    }
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The width and the height of a drawing, with a title or without.
pub(super) fn size(report: &Report, titled: bool) -> (u32, u32) {
    let title = if titled { TITLE } else { 0 };
    (WIDTH, title + LEGEND + PANEL * report.policies.len() as u32 + FOOT)
}

type Drawing<B> = DrawingArea<B, Shift>;
type PlotResult = Result<(), Box<dyn Error>>;

/// Draws everything; the size of the backend says whether there is room for a title.
pub(super) fn draw<B>(backend: B, report: &Report, palette: &Palette) -> PlotResult
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let area = backend.into_drawing_area();
    area.fill(&palette.background)?;
    let titled = area.dim_in_pixel().1 == size(report, true).1;
    let (title, rest) = area.split_vertically(if titled { TITLE } else { 0 });
    if titled {
        write(&title, &table::title(report), &style(40.0, palette.text, HPos::Left), (MARGIN, 34))?;
        write(&title, &table::description(report), &style(26.0, palette.muted, HPos::Left), (MARGIN, 92))?;
    }
    let (legend, mut rest) = rest.split_vertically(LEGEND);
    draw_legend(&legend, report, palette)?;
    let axis = TimeAxis::new(report.start, report.end, report.has_dates);
    for policy in &report.policies {
        let (panel, below) = rest.split_vertically(PANEL);
        draw_panel(&panel, report, policy, &axis, palette)?;
        rest = below;
    }
    draw_foot(&rest, &axis, palette)?;
    area.present()?;
    Ok(())
}

fn style(size: f64, color: RGBColor, at: HPos) -> TextStyle<'static> {
    // The backend divides by this number.
    let font = (FONTS, size * 1.24).into_font();
    font.color(&color).pos(Pos::new(at, VPos::Top))
}

fn write<B: DrawingBackend>(area: &Drawing<B>, text: &str, style: &TextStyle<'_>, at: (i32, i32)) -> PlotResult
where
    B::ErrorType: 'static,
{
    let shown: String = if text.chars().count() > MAX_TEXT {
        text.chars().take(MAX_TEXT - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    };
    area.draw(&Text::new(shown, at, style.clone()))?;
    Ok(())
}

fn draw_legend<B: DrawingBackend>(area: &Drawing<B>, report: &Report, palette: &Palette) -> PlotResult
where
    B::ErrorType: 'static,
{
    let text = style(25.0, palette.text, HPos::Left);
    let mut left = MARGIN;
    let mut entry = |name: &str, width: i32| {
        let at = left;
        left += width;
        write(area, name, &text, (at + 56, 18)).map(|()| at)
    };
    let at = entry("asked", 170)?;
    swatch(area, at, palette.asked.mix(ASKED), palette.asked)?;
    let at = entry("admitted", 210)?;
    swatch(area, at, palette.admitted.mix(ADMITTED), palette.admitted)?;
    if report.policies.iter().any(|policy| policy.delay.is_some()) {
        let at = entry("going on after the delay", 390)?;
        area.draw(&PathElement::new(vec![(at, 32), (at + 42, 32)], palette.going.stroke_width(4)))?;
    }
    let keys = if report.keys == 1 { "the limit" } else { "the limit, for all keys together" };
    let at = entry(keys, 300)?;
    for dash in 0..3 {
        let from = at + dash * 16;
        area.draw(&PathElement::new(vec![(from, 32), (from + 10, 32)], palette.text.stroke_width(3)))?;
    }
    Ok(())
}

fn swatch<B: DrawingBackend>(area: &Drawing<B>, left: i32, fill: RGBAColor, color: RGBColor) -> PlotResult
where
    B::ErrorType: 'static,
{
    area.draw(&Rectangle::new([(left, 18), (left + 42, 46)], fill.filled()))?;
    area.draw(&PathElement::new(vec![(left, 18), (left + 42, 18)], color.stroke_width(4)))?;
    Ok(())
}

fn draw_foot<B: DrawingBackend>(area: &Drawing<B>, axis: &TimeAxis, palette: &Palette) -> PlotResult
where
    B::ErrorType: 'static,
{
    let width = WIDTH as i32 - LEFT as i32 - MARGIN;
    let label = style(24.0, palette.muted, HPos::Center);
    for tick in axis.ticks() {
        let x = LEFT as i32 + (tick / axis.end() * f64::from(width)).round() as i32;
        write(area, &axis.label(tick), &label, (x, 2))?;
    }
    write(area, &axis.description(), &label, (LEFT as i32 + width / 2, 44))
}

/// The curves of a panel, and the limit they are compared with.
struct PanelCurves {
    asked: Curve,
    admitted: Curve,
    going: Option<Curve>,
    limit: f64,
    period: String,
}

impl PanelCurves {
    fn new(report: &Report, policy: &PolicyReport) -> Self {
        let limit = &policy.limits[policy.drawn_limit()];
        let period = limit.period();
        let curve = |of: fn(&Bucket) -> u64| policy.timeline.trailing(period.micros(), report.end, COLUMNS, of);
        let mut admitted = curve(|bucket| bucket.admitted);
        if report.keys == 1 {
            // The worst count of the only key is that of all keys.
            let worst = &policy.worst[policy.drawn_limit()];
            admitted.reach(worst.at.saturating_sub(report.start) as f64 / 1e6, worst.units as f64);
        }
        Self {
            asked: curve(|bucket| bucket.asked),
            admitted,
            going: policy.delay.as_ref().map(|_| curve(|bucket| bucket.going)),
            limit: limit.count() as f64 * report.keys as f64,
            period: spoken(&period.to_string()),
        }
    }

    fn most(&self) -> f64 {
        self.asked.most.max(self.admitted.most).max(self.going.as_ref().map_or(0.0, |curve| curve.most))
    }
}

fn draw_panel<B: DrawingBackend>(
    area: &Drawing<B>,
    report: &Report,
    policy: &PolicyReport,
    axis: &TimeAxis,
    palette: &Palette,
) -> PlotResult
where
    B::ErrorType: 'static,
{
    let curves = PanelCurves::new(report, policy);
    let is_limit_drawn = curves.limit <= FAR_ABOVE * curves.most().max(1.0);
    let most = if is_limit_drawn { curves.most().max(curves.limit) } else { curves.most() };
    draw_panel_head(area, report, policy, &curves, is_limit_drawn, palette)?;
    let ticks = unit_ticks(most * 1.02);
    let top = ticks.last().copied().unwrap_or(1.0);
    let (_, plot) = area.split_vertically(96);
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(MARGIN as u32)
        .margin_bottom(28)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..axis.end(), 0.0..top)?;
    let label = style(24.0, palette.muted, HPos::Right).pos(Pos::new(HPos::Right, VPos::Center));
    for tick in ticks {
        let color = if tick == 0.0 { palette.muted } else { palette.grid };
        let line = PathElement::new(vec![(0.0, tick), (axis.end(), tick)], color.stroke_width(2));
        chart.plotting_area().draw(&line)?;
        let text = Text::new(unit_label(tick), (-16, 0), label.clone());
        chart.plotting_area().draw(&(EmptyElement::at((0.0, tick)) + text))?;
    }
    for tick in axis.ticks() {
        let line = PathElement::new(vec![(tick, 0.0), (tick, top)], palette.grid.stroke_width(2));
        chart.plotting_area().draw(&line)?;
    }
    for (curve, color, opacity) in
        [(&curves.asked, palette.asked, ASKED), (&curves.admitted, palette.admitted, ADMITTED)]
    {
        let area = AreaSeries::new(steps(curve, axis.end()), 0.0, color.mix(opacity));
        chart.draw_series(area.border_style(color.stroke_width(3)))?;
    }
    if let Some(going) = &curves.going {
        chart.draw_series(LineSeries::new(steps(going, axis.end()), palette.going.stroke_width(4)))?;
    }
    if is_limit_drawn {
        let line = [(0.0, curves.limit), (axis.end(), curves.limit)];
        chart.draw_series(DashedLineSeries::new(line, 14, 10, palette.text.stroke_width(3)))?;
    }
    Ok(())
}

/// A period as it stands in a sentence: `minute`, `second`, `3 s`.
fn spoken(period: &str) -> String {
    match (period, period.find(|c: char| c.is_ascii_alphabetic())) {
        ("s", _) => "second".to_owned(),
        ("ms", _) => "millisecond".to_owned(),
        (_, Some(unit)) if unit > 0 && !period.contains(' ') => format!("{} {}", &period[..unit], &period[unit..]),
        _ => period.to_owned(),
    }
}

/// The points of a curve that stays as it is until the next one.
fn steps(curve: &Curve, end: f64) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(curve.points.len() * 2);
    for (index, (time, units)) in curve.points.iter().enumerate() {
        let next = curve.points.get(index + 1).map_or(end, |(time, _)| *time);
        if points.last().is_none_or(|(_, last)| last != units) {
            points.push((time.min(end), *units));
        }
        // A level part needs only its two ends.
        if curve.points.get(index + 1).is_none_or(|(_, following)| following != units) {
            points.push((next.min(end), *units));
        }
    }
    points
}

fn draw_panel_head<B: DrawingBackend>(
    area: &Drawing<B>,
    report: &Report,
    policy: &PolicyReport,
    curves: &PanelCurves,
    is_limit_drawn: bool,
    palette: &Palette,
) -> PlotResult
where
    B::ErrorType: 'static,
{
    let share = trimmed(percent(policy.admitted, policy.asked));
    let mut said = format!("{} of {} admitted ({share} %)", number(policy.admitted), number(policy.asked));
    if policy.shadow {
        said.push_str(&format!(", {} refused in shadow", number(policy.shadow_denied)));
    }
    write(area, &policy.title(), &style(29.0, palette.text, HPos::Left), (MARGIN, 4))?;
    write(area, &said, &style(25.0, palette.text, HPos::Right), (WIDTH as i32 - MARGIN, 8))?;
    let keys = if report.keys == 1 { String::new() } else { format!(" of all {} keys", number(report.keys as u64)) };
    let mut left = format!("units{keys} in the last {}", curves.period);
    if !is_limit_drawn {
        left.push_str(&format!("; their limit of {} is above this plot", number(curves.limit as u64)));
    }
    if report.keys > 1 && policy.refused_keys > 0 {
        let verb = if policy.refused_keys == 1 {
            "key was refused by its own limit"
        } else {
            "keys were refused by their own limits"
        };
        left.push_str(&format!("; {} {verb}", number(policy.refused_keys as u64)));
    }
    let of_limit = |worst: &NamedWorst| {
        let period = spoken(&worst.limit.period().to_string());
        format!("{} in any {period}, limit {}", number(worst.units), number(worst.limit.count()))
    };
    let right = format!("worst for one key: {}", policy.worst.iter().map(of_limit).collect::<Vec<_>>().join("; "));
    write(area, &left, &style(24.0, palette.muted, HPos::Left), (MARGIN, 44))?;
    write(area, &right, &style(24.0, palette.muted, HPos::Right), (WIDTH as i32 - MARGIN, 44))
}
