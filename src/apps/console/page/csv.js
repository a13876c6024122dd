/** Tables as CSV, for spreadsheets and scripts. */

/** A spreadsheet would read such a text as a formula. */
const FORMULA = /^[=+\-@\t\r]/

/** Rows of texts and numbers as CSV (RFC 4180). Texts that look like formulas begin with an apostrophe. */
export function csvOf(rows) {
  return `${rows.map(row => row.map(cellOf).join(',')).join('\r\n')}\r\n`
}

function cellOf(value) {
  if (value === null || value === undefined) return ''
  if (typeof value === 'number') return String(value)
  const text = FORMULA.test(value) ? `'${value}` : String(value)
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** Lets the browser save a text as a file. */
export function download(name, text, type = 'text/csv;charset=utf-8') {
  const address = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement('a')
  link.href = address
  link.download = name
  link.click()
  // By then, the browser has read it.
  setTimeout(() => URL.revokeObjectURL(address), 60_000)
}
