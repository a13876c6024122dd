/**
 * Renders Markdown as elements: headings, lists, quotes, code, tables, emphasis and links. Models are not trusted:
 * everything else is text, images are not loaded, and links lead only to web pages.
 */
import { html } from '../html.js'

/** Longer lines are shown unformatted, because parsing them would take too long. */
const MAX_LINE_CHARS = 10_000
const LIST_ITEM = /^(\s{0,9})(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/
const HEADING = /^(#{1,6})\s+(.*)$/
const FENCE = /^\s{0,3}(```|~~~)(.*)$/
const INLINE =
  /`([^`]{1,2000})`|\*\*([^*]{1,2000})\*\*|\*([^*\s][^*]{0,2000})\*|\[([^\][]{1,500})\]\((https?:\/\/[^\s()<>]{1,2000})\)/g

export function Markdown({ text }) {
  return blocksOf(text.split('\n')).map((block, index) => html`<${Block} key=${index} ...${block} />`)
}

function blocksOf(lines) {
  const blocks = []
  const last = kind => (blocks.at(-1)?.kind === kind ? blocks.at(-1) : null)
  let fence = null
  let isApart = true
  for (const line of lines) {
    const [, mark, language] = FENCE.exec(line) ?? []
    if (fence !== null) {
      if (mark === fence) fence = null
      else blocks.at(-1).lines.push(line)
      continue
    }
    const [, hashes, title] = HEADING.exec(line) ?? []
    const item = LIST_ITEM.exec(line)
    if (mark !== undefined) {
      fence = mark
      blocks.push({ kind: 'code', language: language.trim(), lines: [] })
    } else if (line.trim() === '') {
      isApart = true
      continue
    } else if (hashes !== undefined) blocks.push({ kind: 'heading', level: hashes.length, lines: [title] })
    else if (/^\s{0,3}\|.*\|\s*$/.test(line)) {
      const table = isApart ? null : last('table')
      if (table === null) blocks.push({ kind: 'table', lines: [line] })
      else table.lines.push(line)
    } else if (item !== null) {
      const kind = item[2] === undefined ? 'list' : 'numbers'
      const list = last(kind)
      if (list === null) blocks.push({ kind, start: Number(item[2] ?? 1), lines: [item[3]] })
      else list.lines.push(item[3])
    } else if (/^\s{0,3}>/.test(line)) {
      const quote = isApart ? null : last('quote')
      const quoteText = line.replace(/^\s{0,3}>\s?/, '')
      if (quote === null) blocks.push({ kind: 'quote', lines: [quoteText] })
      else quote.lines.push(quoteText)
    } else {
      const block = isApart ? null : (last('text') ?? last('list') ?? last('numbers'))
      if (block === null) blocks.push({ kind: 'text', lines: [line] })
      else if (block.kind === 'text') block.lines.push(line)
      else block.lines[block.lines.length - 1] += `\n${line.trim()}`
    }
    isApart = false
  }
  return blocks
}

function Block({ kind, lines, level, language, start }) {
  switch (kind) {
    case 'code':
      return html`<pre title=${language}><code>${lines.join('\n')}</code></pre>`
    case 'heading':
      return html`<p class=${`heading h${level}`}>${inline(lines[0])}</p>`
    case 'list':
      return html`<ul>${lines.map((line, index) => html`<li key=${index}>${inline(line)}</li>`)}</ul>`
    case 'numbers':
      return html`<ol start=${start}>${lines.map((line, index) => html`<li key=${index}>${inline(line)}</li>`)}</ol>`
    case 'quote':
      return html`<blockquote>${inline(lines.join('\n'))}</blockquote>`
    case 'table':
      return html`<${Rows} lines=${lines} />`
    default:
      return html`<p>${inline(lines.join('\n'))}</p>`
  }
}

function Rows({ lines }) {
  const isRule = cells => cells.every(cell => /^:?-+:?$/.test(cell))
  const rows = lines.map(line =>
    line
      .trim()
      .replace(/^\||\|$/g, '')
      .split('|')
      .map(cell => cell.trim()),
  )
  return html`
    <table>
      <tbody>
        ${rows
          .filter(cells => !isRule(cells))
          .map(
            (cells, index) =>
              html`<tr key=${index}>${cells.map((cell, column) => html`<td key=${column}>${inline(cell)}</td>`)}</tr>`,
          )}
      </tbody>
    </table>
  `
}

/** Texts and elements of one line or paragraph. */
function inline(text) {
  if (text.length > MAX_LINE_CHARS) return text
  const parts = []
  let from = 0
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, strong, emphasis, name, address] = match
    parts.push(text.slice(from, match.index))
    from = match.index + whole.length
    if (code !== undefined) parts.push(html`<code>${code}</code>`)
    else if (strong !== undefined) parts.push(html`<strong>${strong}</strong>`)
    else if (emphasis !== undefined) parts.push(html`<em>${emphasis}</em>`)
    else
      parts.push(
        html`<a href=${address} title=${address} target="_blank" rel="noopener noreferrer">${name}</a>`,
      )
  }
  parts.push(text.slice(from))
  return parts
}
