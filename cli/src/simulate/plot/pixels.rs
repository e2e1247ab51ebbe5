//! What plotters draws, as pixels: smooth shapes, and text in a font of our own, for browsers alone have theirs.

use std::convert::Infallible;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use skrifa::charmap::Charmap;
use skrifa::instance::{LocationRef, Size};
use skrifa::outline::{DrawSettings, OutlinePen};
use skrifa::{FontRef, MetadataProvider, raw::ReadError};
use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};

use super::super::report::Report;
use super::drawing::{self, Palette};
use super::{Theme, undrawn};
use crate::Failure;

/// The font of the pictures, whose licence is beside it.
const FONT: &[u8] = include_bytes!("font/Inter-subset.otf");
/// Where SVG has the baseline below its anchor, as shares of the font's size: half the height of an `x` is 0.273.
const BELOW_TOP: f32 = 0.76;
const BELOW_CENTER: f32 = 0.273;

type DrawingResult = Result<(), DrawingErrorKind<Infallible>>;

/// The drawing as a file of PNG.
pub(super) fn png(report: &Report, theme: Theme) -> Result<Vec<u8>, Failure> {
    let (width, height) = drawing::size(report, true);
    let mut pixels = Pixmap::new(width, height).ok_or_else(|| undrawn("it is too large"))?;
    let backend = PixelBackend::new(&mut pixels).map_err(undrawn)?;
    drawing::draw(backend, report, Palette::of(theme)).map_err(undrawn)?;
    pixels.encode_png().map_err(undrawn)
}

/// Draws into a picture.
struct PixelBackend<'a> {
    pixels: &'a mut Pixmap,
    font: FontRef<'static>,
    characters: Charmap<'static>,
}

impl<'a> PixelBackend<'a> {
    fn new(pixels: &'a mut Pixmap) -> Result<Self, ReadError> {
        let font = FontRef::new(FONT)?;
        let characters = font.charmap();
        Ok(Self { pixels, font, characters })
    }

    fn fill(&mut self, path: Option<Path>, color: BackendColor) -> DrawingResult {
        if let Some(path) = path {
            self.pixels.fill_path(&path, &paint(color), FillRule::Winding, Transform::identity(), None);
        }
        Ok(())
    }

    fn stroke(&mut self, path: Option<Path>, style: &impl BackendStyle) -> DrawingResult {
        let stroke = Stroke { width: style.stroke_width() as f32, ..Stroke::default() };
        if let Some(path) = path {
            self.pixels.stroke_path(&path, &paint(style.color()), &stroke, Transform::identity(), None);
        }
        Ok(())
    }

    /// The outlines of a text from its baseline's start, and its width.
    fn outlines(&self, text: &str, size: f32) -> (PathBuilder, f32) {
        let (size, location) = (Size::new(size), LocationRef::default());
        let (metrics, glyphs) = (self.font.glyph_metrics(size, location), self.font.outline_glyphs());
        let mut pen = Pen { path: PathBuilder::new(), left: 0.0 };
        for letter in text.chars() {
            // A letter that the font does not have is drawn as the box that every font has for it.
            let glyph = self.characters.map(letter).unwrap_or_default();
            if let Some(outline) = glyphs.get(glyph) {
                // An outline that cannot be read leaves a gap of its width.
                let _ = outline.draw(DrawSettings::unhinted(size, location), &mut pen);
            }
            pen.left += metrics.advance_width(glyph).unwrap_or_default();
        }
        (pen.path, pen.left)
    }
}

fn paint(color: BackendColor) -> Paint<'static> {
    let (red, green, blue) = color.rgb;
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(Color::from_rgba8(red, green, blue, (color.alpha * 255.0).round() as u8));
    paint
}

fn open_path(points: impl IntoIterator<Item = BackendCoord>) -> PathBuilder {
    let mut path = PathBuilder::new();
    for (index, (x, y)) in points.into_iter().enumerate() {
        if index == 0 { path.move_to(x as f32, y as f32) } else { path.line_to(x as f32, y as f32) }
    }
    path
}

impl DrawingBackend for PixelBackend<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.pixels.width(), self.pixels.height())
    }

    fn ensure_prepared(&mut self) -> DrawingResult {
        Ok(())
    }

    fn present(&mut self) -> DrawingResult {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> DrawingResult {
        self.fill(Rect::from_xywh(x as f32, y as f32, 1.0, 1.0).map(PathBuilder::from_rect), color)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> DrawingResult {
        let rect = Rect::from_ltrb(from.0 as f32, from.1 as f32, to.0 as f32, to.1 as f32);
        let path = rect.map(PathBuilder::from_rect);
        if fill { self.fill(path, style.color()) } else { self.stroke(path, style) }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> DrawingResult {
        self.stroke(open_path(path).finish(), style)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        points: I,
        style: &S,
    ) -> DrawingResult {
        let mut path = open_path(points);
        path.close();
        self.fill(path.finish(), style.color())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> DrawingResult {
        // As the SVG backend divides it.
        let size = (style.size() / 1.24) as f32;
        let (path, width) = self.outlines(text, size);
        let left = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => width / 2.0,
            HPos::Right => width,
        };
        let baseline = match style.anchor().v_pos {
            VPos::Top => BELOW_TOP * size,
            VPos::Center => BELOW_CENTER * size,
            VPos::Bottom => -BELOW_CENTER * size,
        };
        let moved = Transform::from_translate(x as f32 - left, y as f32 + baseline);
        self.fill(path.finish().and_then(|path| path.transform(moved)), style.color())
    }
}

/// Writes outlines of glyphs, whose y grows upwards, one beside the other.
struct Pen {
    path: PathBuilder,
    left: f32,
}

impl OutlinePen for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.left + x, -y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.left + x, -y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.left + x1, -y1, self.left + x, -y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.left + x1, -y1, self.left + x2, -y2, self.left + x, -y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
