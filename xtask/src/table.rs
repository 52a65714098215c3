//! Markdown tables, aligned so that they read well in a terminal too.

use std::fmt;

/// A heading and rows of the same width.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    numeric: Vec<bool>,
}

impl Table {
    /// A heading that ends with `#` is a column of numbers: aligned right, the mark left out.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            numeric: head.iter().map(|h| h.ends_with('#')).collect(),
            head: head
                .iter()
                .map(|h| h.trim_end_matches('#').to_owned())
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty, and more than the heading has are dropped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |cell: &String| cell.replace('|', "\\|").replace('\n', " ");
        let rows: Vec<Vec<String>> = std::iter::once(&self.head)
            .chain(&self.rows)
            .map(|row| row.iter().map(escaped).collect())
            .collect();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|i| {
                let cells = rows.iter().map(|row| row[i].chars().count());
                cells.max().unwrap_or(0).max(3)
            })
            .collect();
        for (n, row) in rows.iter().enumerate() {
            for ((cell, &width), &numeric) in row.iter().zip(&widths).zip(&self.numeric) {
                if numeric {
                    write!(f, "| {cell:>width$} ")?;
                } else {
                    write!(f, "| {cell:<width$} ")?;
                }
            }
            writeln!(f, "|")?;
            if n == 0 {
                for (&width, &numeric) in widths.iter().zip(&self.numeric) {
                    let end = if numeric { ":" } else { "-" };
                    write!(f, "|{}{end}", "-".repeat(width + 1))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_bars_in_cells_are_escaped() {
        let mut t = Table::new(&["name", "seconds#"]);
        t.row(["a|b", "1.5"]);
        t.row(["longer"]);
        assert_eq!(
            t.to_string(),
            "| name   | seconds |\n\
             |--------|--------:|\n\
             | a\\|b   |     1.5 |\n\
             | longer |         |\n"
        );
    }
}
