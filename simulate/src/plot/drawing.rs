//! The drawing: a title, a legend, and a panel for each policy with the asked units, the admitted units, and the limit.

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Theme;
use super::axis::{TimeAxis, unit_label, unit_ticks};
use crate::report::{NamedWorst, PolicyReport, Report, percent};
use crate::table;
use crate::text::{number, of_unit};
use crate::timeline::{Bucket, Curve};
use crate::traffic::moment::trimmed;

/// Units of the drawing in a pixel.
pub(crate) const SCALE: u32 = 2;
const WIDTH: u32 = 2_000;
/// The height of the title and of the description of the traffic …
const TITLE: u32 = 132;
/// … and of the legend below.
const LEGEND: u32 = 84;
const PANEL: u32 = 412;
const FOOT: u32 = 96;
const MARGIN: i32 = 48;
/// The left end of the curves.
const LEFT: u32 = 150;
/// The most points of a curve.
const COLUMNS: usize = 900;
/// A limit so many times above all curves is not drawn, because it would make them flat.
const FAR_ABOVE: f64 = 2.5;
/// The longest text of a line.
const MAX_TEXT: usize = 100;
/// How opaque the areas are.
const ASKED: f64 = 0.3;
const ADMITTED: f64 = 0.6;
const FONTS: &str = "Inter, system-ui, sans-serif";

/// The colours of the background, the text, muted text, the grid, and the asked, admitted and delayed units. The curves have those of
/// Okabe and Ito's palette, which people with any colour vision can tell apart.
pub(crate) const LIGHT: [u32; 7] = [0xffffff, 0x1f2933, 0x5b6673, 0xe1e6eb, 0xe69f00, 0x0072b2, 0x009e73];
pub(crate) const DARK: [u32; 7] = [0x161b22, 0xe6edf3, 0x9da7b3, 0x303842, 0xf0b232, 0x56b4e9, 0x3cc89b];

/// The colours that a drawing has before the style of its reader.
fn palette(theme: Theme) -> [RGBColor; 7] {
    let colors = if theme == Theme::Dark { DARK } else { LIGHT };
    colors.map(|color| {
        let [_, red, green, blue] = color.to_be_bytes();
        RGBColor(red, green, blue)
    })
}

/// Replaces the colours of a light drawing if the reader prefers dark ones.
pub(crate) fn style_for_dark() -> String {
    let mut style = "<style>@media (prefers-color-scheme: dark) {\n".to_owned();
    for (light, dark) in LIGHT.iter().zip(DARK) {
        style += &format!(
            "[fill=\"#{light:06X}\"] {{ fill: #{dark:06X} }} [stroke=\"#{light:06X}\"] {{ stroke: #{dark:06X} }}\n"
        );
    }
    style + "}</style>\n"
}

/// The width and the height of a drawing, with a title or without.
pub(crate) fn size(report: &Report, titled: bool) -> (u32, u32) {
    let title = if titled { TITLE } else { 0 };
    (WIDTH, title + LEGEND + PANEL * report.policies.len() as u32 + FOOT)
}

type Area<B> = DrawingArea<B, Shift>;
type PlotResult<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// The report to draw, with its axis and its colours.
struct Drawing<'a> {
    report: &'a Report,
    axis: TimeAxis,
    palette: [RGBColor; 7],
}

/// Draws everything. The title is drawn only if the backend has the height for it.
pub(crate) fn draw<B: DrawingBackend>(backend: B, report: &Report, theme: Theme) -> PlotResult<B> {
    let palette @ [background, text, muted, ..] = palette(theme);
    let area = backend.into_drawing_area();
    area.fill(&background)?;
    let titled = area.dim_in_pixel().1 == size(report, true).1;
    let (title, rest) = area.split_vertically(if titled { TITLE } else { 0 });
    if titled {
        write(&title, &table::title(report), &style(40.0, text, HPos::Left), (MARGIN, 34))?;
        write(&title, &table::description(report), &style(26.0, muted, HPos::Left), (MARGIN, 92))?;
    }
    let drawing = Drawing { report, axis: TimeAxis::new(report.start, report.end, report.has_dates), palette };
    let (legend, mut rest) = rest.split_vertically(LEGEND);
    drawing.legend(&legend)?;
    for policy in &report.policies {
        let (panel, below) = rest.split_vertically(PANEL);
        drawing.panel(&panel, policy)?;
        rest = below;
    }
    drawing.foot(&rest)?;
    area.present()
}

fn style(size: f64, color: RGBColor, at: HPos) -> TextStyle<'static> {
    // The backend divides by this number.
    let font = (FONTS, size * 1.24).into_font();
    font.color(&color).pos(Pos::new(at, VPos::Top))
}

fn write<B: DrawingBackend>(area: &Area<B>, text: &str, style: &TextStyle<'_>, at: (i32, i32)) -> PlotResult<B> {
    let mut shown: String = text.chars().take(MAX_TEXT).collect();
    if shown.len() < text.len() {
        shown.pop();
        shown.push('…');
    }
    area.draw(&Text::new(shown, at, style.clone()))
}

/// A horizontal line in the legend.
fn level(left: i32, width: i32, top: i32, style: ShapeStyle) -> PathElement<(i32, i32)> {
    PathElement::new(vec![(left, top), (left + width, top)], style)
}

/// The curves of a panel, and the limit they are compared with.
struct PanelCurves {
    asked: Curve,
    admitted: Curve,
    going: Option<Curve>,
    most: f64,
    limit: f64,
    is_limit_drawn: bool,
    period: String,
}

impl PanelCurves {
    fn new(report: &Report, policy: &PolicyReport) -> Self {
        let worst = policy.drawn_limit();
        let period = worst.limit.period();
        let timeline = policy.figures.timeline_of(&worst.limit);
        let curve = |of: fn(&Bucket) -> u64| timeline.trailing(period.micros(), report.end, COLUMNS, of);
        let (asked, mut admitted) = (curve(|bucket| bucket.asked), curve(|bucket| bucket.admitted));
        if report.keys == 1 {
            // The worst count of the only key is that of all keys.
            admitted.reach(worst.at.saturating_sub(report.start) as f64 / 1e6, worst.units as f64);
        }
        let going = policy.worst_after_delay.as_ref().map(|_| curve(|bucket| bucket.going));
        let most = going.iter().chain([&asked, &admitted]).map(|curve| curve.most).fold(0.0, f64::max);
        let limit = worst.limit.count() as f64 * report.keys as f64;
        let is_limit_drawn = limit <= FAR_ABOVE * most.max(1.0);
        Self { asked, admitted, going, most, limit, is_limit_drawn, period: spoken(&period.to_string()) }
    }
}

impl Drawing<'_> {
    fn legend<B: DrawingBackend>(&self, area: &Area<B>) -> PlotResult<B> {
        let [_, text, _, _, asked, admitted, going] = self.palette;
        let text_style = style(25.0, text, HPos::Left);
        let mut left = MARGIN;
        let mut entry = |name: &str, width: i32| {
            let at = left;
            left += width;
            write(area, name, &text_style, (at + 56, 18)).map(|()| at)
        };
        for (name, width, color, opacity) in [("asked", 170, asked, ASKED), ("admitted", 210, admitted, ADMITTED)] {
            let at = entry(name, width)?;
            area.draw(&Rectangle::new([(at, 18), (at + 42, 46)], color.mix(opacity).filled()))?;
            area.draw(&level(at, 42, 18, color.stroke_width(4)))?;
        }
        if self.report.policies.iter().any(|policy| policy.worst_after_delay.is_some()) {
            let at = entry("going on after the delay", 390)?;
            area.draw(&level(at, 42, 32, going.stroke_width(4)))?;
        }
        let at = entry(if self.report.keys == 1 { "the limit" } else { "the limit, for all keys together" }, 300)?;
        (0..3).try_for_each(|dash| area.draw(&level(at + dash * 16, 10, 32, text.stroke_width(3))))
    }

    fn foot<B: DrawingBackend>(&self, area: &Area<B>) -> PlotResult<B> {
        let width = WIDTH as i32 - LEFT as i32 - MARGIN;
        let [_, _, muted, ..] = self.palette;
        let label = style(24.0, muted, HPos::Center);
        for tick in self.axis.ticks() {
            let x = LEFT as i32 + (tick / self.axis.end() * f64::from(width)).round() as i32;
            write(area, &self.axis.label(tick), &label, (x, 2))?;
        }
        write(area, &self.axis.description(), &label, (LEFT as i32 + width / 2, 44))
    }

    fn panel<B: DrawingBackend>(&self, area: &Area<B>, policy: &PolicyReport) -> PlotResult<B> {
        let [_, text, muted, grid, asked, admitted, going] = self.palette;
        let curves = PanelCurves::new(self.report, policy);
        self.panel_head(area, policy, &curves)?;
        let most = if curves.is_limit_drawn { curves.most.max(curves.limit) } else { curves.most };
        let ticks = unit_ticks(most * 1.02);
        let (end, top) = (self.axis.end(), ticks.last().copied().unwrap_or(1.0));
        let (_, plot) = area.split_vertically(96);
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(MARGIN as u32)
            .margin_bottom(28)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        let label = style(24.0, muted, HPos::Right).pos(Pos::new(HPos::Right, VPos::Center));
        for tick in ticks {
            let color = if tick == 0.0 { muted } else { grid };
            chart.plotting_area().draw(&PathElement::new(vec![(0.0, tick), (end, tick)], color.stroke_width(2)))?;
            let text = Text::new(unit_label(tick), (-16, 0), label.clone());
            chart.plotting_area().draw(&(EmptyElement::at((0.0, tick)) + text))?;
        }
        for tick in self.axis.ticks() {
            chart.plotting_area().draw(&PathElement::new(vec![(tick, 0.0), (tick, top)], grid.stroke_width(2)))?;
        }
        for (curve, color, opacity) in [(&curves.asked, asked, ASKED), (&curves.admitted, admitted, ADMITTED)] {
            let area = AreaSeries::new(steps(curve, end), 0.0, color.mix(opacity));
            chart.draw_series(area.border_style(color.stroke_width(3)))?;
        }
        if let Some(curve) = &curves.going {
            chart.draw_series(LineSeries::new(steps(curve, end), going.stroke_width(4)))?;
        }
        if curves.is_limit_drawn {
            let line = [(0.0, curves.limit), (end, curves.limit)];
            chart.draw_series(DashedLineSeries::new(line, 14, 10, text.stroke_width(3)))?;
        }
        Ok(())
    }

    fn panel_head<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        policy: &PolicyReport,
        curves: &PanelCurves,
    ) -> PlotResult<B> {
        let (keys, figures) = (self.report.keys, &policy.figures);
        let (asked, admitted) = (number(figures.asked), number(figures.admitted));
        let share = trimmed(percent(figures.admitted, figures.asked));
        let mut said = format!("{admitted} of {asked} admitted ({share} %)");
        if policy.policy.options().shadow {
            said += &format!(", {} refused in shadow", number(figures.shadow_denied));
        }
        let of_keys = if keys == 1 { String::new() } else { format!(" of all {} keys", number(keys as u64)) };
        let units = policy.drawn_limit().limit.unit().map_or("units", tidegate::Unit::name);
        let mut left = format!("{units}{of_keys} in the last {}", curves.period);
        if !curves.is_limit_drawn {
            left += &format!("; their limit of {} is above this plot", number(curves.limit as u64));
        }
        left += &match (keys, figures.refused_keys()) {
            (..=1, _) | (_, 0) => String::new(),
            (_, 1) => "; 1 key was refused by its own limit".to_owned(),
            (_, refused) => format!("; {} keys were refused by their own limits", number(refused as u64)),
        };
        let of_limit = |worst: &NamedWorst| {
            let period = spoken(&worst.limit.period().to_string());
            format!(
                "{} in any {period}, limit {}",
                number(worst.units),
                of_unit(worst.limit.count(), worst.limit.unit())
            )
        };
        let right = format!("worst for one key: {}", policy.worst.iter().map(of_limit).collect::<Vec<_>>().join("; "));
        let [_, text, muted, ..] = self.palette;
        let edge = WIDTH as i32 - MARGIN;
        write(area, &policy.title(), &style(29.0, text, HPos::Left), (MARGIN, 4))?;
        write(area, &said, &style(25.0, text, HPos::Right), (edge, 8))?;
        write(area, &left, &style(24.0, muted, HPos::Left), (MARGIN, 44))?;
        write(area, &right, &style(24.0, muted, HPos::Right), (edge, 44))
    }
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

/// The points of a curve that keeps its value until the next point. A level part needs only its two ends.
fn steps(curve: &Curve, end: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for level in curve.points.chunk_by(|(_, units), (_, next)| units == next) {
        let (begin, units) = (level[0].0.min(end), level[0].1);
        if let Some(last) = points.last_mut() {
            last.0 = begin;
        }
        points.extend([(begin, units), (end, units)]);
    }
    points
}
