//! Plots of a simulation, by the extension of their file: SVG, PNG and a page of HTML. All show the same drawing.

mod axis;
mod drawing;
mod html;
mod pixels;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plotters::prelude::SVGBackend;
use tiny_skia::Pixmap;

use super::report::Report;
use super::table;
use crate::Failure;
use crate::terminal::path_text;
use drawing::{Palette, SCALE};
use pixels::PixelBackend;

/// Which colours a plot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Theme {
    /// As the reader's browser is set; PNG is light
    Auto,
    Light,
    Dark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Svg,
    Png,
    Html,
}

/// A file to write.
#[derive(Debug)]
pub(super) struct PlotFile {
    path: PathBuf,
    kind: Kind,
    theme: Theme,
}

impl PlotFile {
    /// The files of all paths, before any work is done for them.
    pub(super) fn all(paths: &[PathBuf], theme: Theme) -> Result<Vec<Self>, Failure> {
        paths.iter().map(|path| Self::new(path, theme)).collect()
    }

    fn new(path: &Path, theme: Theme) -> Result<Self, Failure> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        let kind = match extension.as_deref() {
            Some("svg") => Kind::Svg,
            Some("png") => Kind::Png,
            Some("html" | "htm") => Kind::Html,
            _ => {
                return Err(Failure::argument(format!(
                    "--out {}: the extension says what to draw, and this is none of .svg, .png and .html",
                    path_text(path)
                )));
            }
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(Failure::argument(format!(
                "--out {}: there is no folder {}; make it first",
                path_text(path),
                path_text(folder)
            )));
        }
        Ok(Self { path: path.to_owned(), kind, theme })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Draws and writes it.
    pub(super) fn write(&self, report: &Report) -> Result<(), Failure> {
        let contents = match self.kind {
            Kind::Svg => svg(report, self.theme, true)?.into_bytes(),
            Kind::Png => png(report, self.theme)?,
            Kind::Html => html::page(report, &svg(report, self.theme, false)?, self.theme).into_bytes(),
        };
        std::fs::write(&self.path, contents).map_err(|error| Failure::unwritable(path_text(&self.path), &error))
    }
}

fn undrawn(error: impl std::fmt::Display) -> Failure {
    Failure::argument(format!("the plot cannot be drawn: {error}; leave out --out, and report this"))
}

/// The drawing, with a title or for a page that has one, in colours that follow the reader where the theme says so.
fn svg(report: &Report, theme: Theme, titled: bool) -> Result<String, Failure> {
    let palette = if theme == Theme::Dark { Palette::DARK } else { Palette::LIGHT };
    let mut svg = String::new();
    drawing::draw(SVGBackend::with_string(&mut svg, drawing::size(report, titled)), report, &palette)
        .map_err(undrawn)?;
    let (tag, rest) = svg.split_once('>').ok_or_else(|| undrawn("it has no beginning"))?;
    // It is drawn in half pixels, so that curves are smooth.
    let (width, height) = drawing::size(report, titled);
    let tag = tag.replace(&format!("width=\"{width}\""), &format!("width=\"{}\"", width / SCALE));
    let tag = tag.replace(&format!("height=\"{height}\""), &format!("height=\"{}\"", height / SCALE));
    let title = html::escaped(&table::title(report));
    let style = if theme == Theme::Auto { Palette::style_for_dark() } else { String::new() };
    Ok(format!(
        "{tag} role=\"img\" style=\"max-width:100%;height:auto\">\n<title>{title}</title>\n{style}{}",
        rest.trim_start()
    ))
}

fn png(report: &Report, theme: Theme) -> Result<Vec<u8>, Failure> {
    let palette = if theme == Theme::Dark { Palette::DARK } else { Palette::LIGHT };
    let (width, height) = drawing::size(report, true);
    let mut pixels = Pixmap::new(width, height).ok_or_else(|| undrawn("it is too large"))?;
    let backend = PixelBackend::new(&mut pixels).map_err(undrawn)?;
    drawing::draw(backend, report, &palette).map_err(undrawn)?;
    pixels.encode_png().map_err(undrawn)
}
