/**
 * Extracts the text of HTML in one pass, without a document tree, for any tags. Used for pages that are too large, too
 * deep or too unusual for page-text.ts. Pure; task worker, bulk.
 */

/** Elements whose text is not shown to readers. */
const HIDDEN_ELEMENTS: ReadonlySet<string> = new Set([
  'script',
  'style',
  'noscript',
  'template',
  'svg',
  'head',
  'iframe',
])
/** Elements that end a line. */
const LINE_ELEMENTS: ReadonlySet<string> = new Set(
  'address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section table td th tr ul'.split(
    ' ',
  ),
)
const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
  hellip: '…',
  mdash: '—',
  ndash: '–',
  copy: '©',
  laquo: '«',
  raquo: '»',
  euro: '€',
}
const MAX_NAME_CHARS = 16

/** The text with trimmed lines and at most one empty line between two. Stops when `maxChars` are found. */
export function plainHtml(html: string, maxChars: number): string {
  const lower = html.toLowerCase()
  // Lower case may have another length; then tags are searched in their own spelling.
  const tags = lower.length === html.length ? lower : html
  const parts: string[] = []
  let chars = 0
  let position = 0
  while (position < html.length && chars < maxChars) {
    const open = html.indexOf('<', position)
    const end = open === -1 ? html.length : open
    if (end > position) {
      const text = html.slice(position, Math.min(end, position + (maxChars - chars) * 8))
      parts.push(text)
      chars += text.length
    }
    if (open === -1) break
    const next = afterTag(tags, open)
    if (next.text !== '') parts.push(next.text)
    position = next.position
  }
  return trimLines(decodeEntities(parts.join('')))
}

/** The text that replaces the tag, and the index after the tag. */
function afterTag(tags: string, open: number): { text: string; position: number } {
  if (tags.startsWith('<!--', open)) return { text: '', position: endOf(tags, '-->', open + 4) }
  const name = nameAt(tags, open + 1)
  if (name === '' && !/[/!?]/.test(tags[open + 1] ?? '')) return { text: '<', position: open + 1 }
  const end = endOf(tags, '>', open + 1)
  if (HIDDEN_ELEMENTS.has(name)) {
    const close = tags.indexOf(`</${name}`, end)
    // An element without an end hides the rest of the page.
    return { text: '\n', position: close === -1 ? tags.length : endOf(tags, '>', close) }
  }
  const endsLine = LINE_ELEMENTS.has(name) || LINE_ELEMENTS.has(nameAt(tags, open + 2))
  return { text: endsLine ? '\n' : '', position: end }
}

function nameAt(tags: string, from: number): string {
  return /^[a-z][a-z0-9]*/.exec(tags.slice(from, from + MAX_NAME_CHARS))?.[0] ?? ''
}

function endOf(text: string, mark: string, from: number): number {
  const index = text.indexOf(mark, from)
  return index === -1 ? text.length : index + mark.length
}

function decodeEntities(text: string): string {
  return text.replace(
    /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,8}));/g,
    (entity, decimal, hex, name) => {
      if (name !== undefined) return ENTITIES[name as string] ?? entity
      const code = decimal === undefined ? Number.parseInt(hex as string, 16) : Number(decimal)
      return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)
        ? String.fromCodePoint(code)
        : ''
    },
  )
}

function trimLines(text: string): string {
  const lines: string[] = []
  for (const line of text.split('\n')) {
    const words = line.replace(/[ \t\r\f\u00a0]+/g, ' ').trim()
    if (words !== '' || (lines.length > 0 && lines.at(-1) !== '')) lines.push(words)
  }
  while (lines.at(-1) === '') lines.pop()
  return lines.join('\n')
}
