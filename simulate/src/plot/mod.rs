//! Plots of a simulation, by the extension of their file: SVG and a page of HTML. Both show the same drawing.

mod axis;
mod drawing;
mod html;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plotters::prelude::SVGBackend;
use tidegate::{Error, Result};

use crate::errors::{invalid, unwritable};
use crate::report::Report;
use crate::table;
use crate::text::path_text;
use drawing::SCALE;

/// Which colours a plot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "a comment would be the help of the command")]
pub enum Theme {
    /// As the reader's browser is set
    Auto,
    Light,
    Dark,
}

/// Returns true for a page and false for a picture, by the extension of the file.
fn is_page(path: &Path) -> Result<bool> {
    let refused = |why: &str| invalid(format!("--out {}: {why}", path_text(path)));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let is_page = match extension.as_deref() {
        Some("svg") => false,
        Some("html" | "htm") => true,
        Some("png") => {
            return Err(refused("PNG is not supported: write a .svg, and convert it or open it in a browser"));
        }
        _ => return Err(refused("the file must end in .svg or .html")),
    };
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(refused(&format!("there is no folder {}: make it first", path_text(folder)))),
        None => Ok(is_page),
    }
}

/// Checks that plots can be drawn into all these files, before any work is done.
///
/// # Errors
/// `config_invalid` for a file of another kind and for a folder that does not exist.
pub fn check_plots(paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| is_page(path).map(drop))
}

impl Report {
    /// Draws a plot, a picture or a page by the extension of the file.
    ///
    /// # Errors
    /// `config_invalid` for a file that cannot be written, and as [`check_plots`].
    pub fn draw(&mut self, path: &Path, theme: Theme) -> Result<()> {
        let is_page = is_page(path)?;
        let svg = svg(self, theme, !is_page)?;
        let contents = if is_page { html::page(self, &svg, theme) } else { svg };
        std::fs::write(path, contents).map_err(|error| unwritable(path_text(path), &error))?;
        self.files.push(path_text(path));
        Ok(())
    }
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    invalid(format!("the plot cannot be drawn: {error}. Leave out --out, and please report this"))
}

/// The drawing, with a title or for a page that has one. With `Theme::Auto`, its colours follow the reader.
fn svg(report: &Report, theme: Theme, titled: bool) -> Result<String> {
    let (mut svg, (width, height)) = (String::new(), drawing::size(report, titled));
    let backend = SVGBackend::with_string(&mut svg, (width, height));
    drawing::draw(backend, report, theme).map_err(undrawn)?;
    let (tag, rest) = svg.split_once('>').ok_or_else(|| undrawn("it has no beginning"))?;
    // It is drawn in half pixels, so that curves are smooth.
    let halved = |tag: &str, name: &str, size: u32| {
        tag.replace(&format!("{name}=\"{size}\""), &format!("{name}=\"{}\"", size / SCALE))
    };
    let tag = halved(&halved(tag, "width", width), "height", height);
    let title = html::escaped(&table::title(report));
    let style = if theme == Theme::Auto { drawing::style_for_dark() } else { String::new() };
    let rest = rest.trim_start();
    Ok(format!("{tag} role=\"img\" style=\"max-width:100%;height:auto\">\n<title>{title}</title>\n{style}{rest}"))
}
