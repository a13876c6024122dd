/**
 * Writes a document tree as Markdown for models: no escapes before punctuation, table rows as lines with bars. The
 * caller has limited the depth of the tree. Pure; task worker.
 */

/** The members of a tree's nodes that are read here. */
export interface MarkdownNode {
  /** In upper case for HTML elements; `#text` for texts. */
  readonly nodeName: string
  readonly textContent: string
  readonly childNodes: ArrayLike<MarkdownNode>
  getAttribute(name: string): string | null
}

/** A run of text within a line, or a block of lines. */
interface Piece {
  readonly isBlock: boolean
  readonly text: string
}

type Write = (node: MarkdownNode) => readonly Piece[]

/** Empty if the tree has no text. */
export function markdownOf(root: MarkdownNode): string {
  return blocksOf(root).join('\n\n')
}

const BLOCK_ELEMENTS =
  'ADDRESS ARTICLE ASIDE BODY CAPTION CENTER DD DETAILS DIALOG DIR DIV DL DT FIELDSET FIGCAPTION FIGURE FOOTER HEADER HGROUP HTML LI MAIN MENU P SEARCH SECTION SUMMARY TBODY TD TFOOT TH THEAD TR'

/** Keyed by element name; of other elements only the content is written. */
const WRITERS: ReadonlyMap<string, Write> = new Map<string, Write>([
  ...BLOCK_ELEMENTS.split(' ').map(name => [name, blocks] as const),
  ...[1, 2, 3, 4, 5, 6].map(
    level => [`H${level}`, (node: MarkdownNode) => heading('#'.repeat(level), node)] as const,
  ),
  ['B', node => marked('**', node)],
  ['STRONG', node => marked('**', node)],
  ['EM', node => marked('_', node)],
  ['I', node => marked('_', node)],
  ['CODE', code],
  ['KBD', code],
  ['SAMP', code],
  ['A', link],
  ['BR', () => [inline('\n')]],
  ['HR', () => [block('---')]],
  ['PRE', fenced],
  ['UL', node => list(node, () => '- ')],
  ['OL', node => list(node, index => `${index + 1}. `)],
  ['BLOCKQUOTE', quote],
  ['TABLE', table],
])

const inline = (text: string): Piece => ({ isBlock: false, text })
const block = (text: string): Piece => ({ isBlock: true, text })

function piecesOf({ childNodes }: MarkdownNode): readonly Piece[] {
  return Array.from(childNodes).flatMap(child => {
    const { nodeName } = child
    if (nodeName === '#text') return [inline(child.textContent.replace(/[ \t\r\n\f]+/g, ' '))]
    if (nodeName.startsWith('#')) return []
    return (WRITERS.get(nodeName.toUpperCase()) ?? piecesOf)(child)
  })
}

/** Adjacent runs of text become one block. */
function blocksOf(node: MarkdownNode): string[] {
  const blocks: string[] = []
  let line = ''
  const endLine = (): void => {
    const text = trimBlanks(line)
    if (text !== '') blocks.push(text)
    line = ''
  }
  for (const { isBlock, text } of piecesOf(node)) {
    if (isBlock) {
      endLine()
      blocks.push(text)
    } else line += text
  }
  endLine()
  return blocks
}

/** Only `br` makes a line end within a paragraph. */
function trimBlanks(line: string): string {
  return line
    .replace(/ {2,}/g, ' ')
    .replace(/ ?\n ?/g, '\n')
    .replace(/^[ \n]+|[ \n]+$/g, '')
}

/** All text of a node in one line. */
function lineOf(node: MarkdownNode): string {
  return blocksOf(node)
    .join(' ')
    .replace(/\s*\n\s*/g, ' ')
}

function blocks(node: MarkdownNode): readonly Piece[] {
  return blocksOf(node).map(block)
}

function heading(mark: string, node: MarkdownNode): readonly Piece[] {
  const text = lineOf(node)
  return text === '' ? [] : [block(`${mark} ${text}`)]
}

/** Blanks at both ends of the text stay outside the marks. */
function marked(mark: string, node: MarkdownNode): readonly Piece[] {
  const pieces = piecesOf(node)
  if (pieces.some(({ isBlock }) => isBlock)) return pieces
  const text = pieces.map(piece => piece.text).join('')
  const inner = text.trim()
  if (inner === '') return [inline(text)]
  const start = text.indexOf(inner)
  return [inline(`${text.slice(0, start)}${mark}${inner}${mark}${text.slice(start + inner.length)}`)]
}

function link(node: MarkdownNode): readonly Piece[] {
  const pieces = piecesOf(node)
  const href = node.getAttribute('href')
  const hasBlocks = pieces.some(({ isBlock }) => isBlock)
  const texts = pieces.map(({ text }) => text.replace(/^#{1,6} /, ''))
  const label = trimBlanks(texts.join(hasBlocks ? ' ' : '')).replace(/\s*\n\s*/g, ' ')
  return label === '' || href === null ? pieces : [{ isBlock: hasBlocks, text: `[${label}](${href})` }]
}

function code({ textContent }: MarkdownNode): readonly Piece[] {
  const text = textContent.replace(/\s+/g, ' ').trim()
  if (text === '') return [inline(textContent === '' ? '' : ' ')]
  const fence = '`'.repeat(longestTicks(text) + 1)
  const pad = text.startsWith('`') || text.endsWith('`') ? ' ' : ''
  return [inline(`${fence}${pad}${text}${pad}${fence}`)]
}

function fenced(node: MarkdownNode): readonly Piece[] {
  const text = node.textContent.replace(/^\n|\n$/g, '')
  if (text.trim() === '') return []
  const classes = [node, ...Array.from(node.childNodes).filter(({ nodeName }) => nodeName === 'CODE')]
  const names = classes.map(element => element.getAttribute('class') ?? '').join(' ')
  const [, language = ''] = /(?:^|\s)lang(?:uage)?-([\w+#.-]{1,40})/.exec(names) ?? []
  const fence = '`'.repeat(Math.max(3, longestTicks(text) + 1))
  return [block(`${fence}${language}\n${text}\n${fence}`)]
}

function longestTicks(text: string): number {
  return (text.match(/`+/g) ?? []).reduce((longest, { length }) => Math.max(longest, length), 0)
}

function list({ childNodes }: MarkdownNode, markOf: (index: number) => string): readonly Piece[] {
  const items = Array.from(childNodes)
    .filter(({ nodeName }) => !nodeName.startsWith('#'))
    .map(child => (child.nodeName === 'LI' ? blocksOf(child) : blocksOf(wrapAlone(child))))
    .filter(({ length }) => length > 0)
  if (items.length === 0) return []
  return [
    block(
      items
        .map((item, index) => {
          const mark = markOf(index)
          return `${mark}${item.join('\n').replace(/\n(?=[^\n])/g, `\n${' '.repeat(mark.length)}`)}`
        })
        .join('\n'),
    ),
  ]
}

/** Wraps a node in a list item, for content that is outside the items of a list or the rows of a table. */
function wrapAlone(child: MarkdownNode): MarkdownNode {
  return { nodeName: 'LI', textContent: child.textContent, childNodes: [child], getAttribute: () => null }
}

function quote(node: MarkdownNode): readonly Piece[] {
  const text = blocksOf(node).join('\n\n')
  return text === '' ? [] : [block(text.replace(/^/gm, '> ').replace(/^> $/gm, '>'))]
}

/** A first row of headings gets a separator. Content that is not a row comes before the rows. */
function table(node: MarkdownNode): readonly Piece[] {
  const otherBlocks: string[] = []
  const rows: string[] = []
  const read = ({ childNodes }: MarkdownNode): void => {
    for (const child of Array.from(childNodes)) {
      if (child.nodeName === 'TR') rows.push(...row(child, rows.length === 0))
      else if (TABLE_SECTIONS.has(child.nodeName)) read(child)
      else if (!child.nodeName.startsWith('#')) otherBlocks.push(...blocksOf(wrapAlone(child)))
    }
  }
  read(node)
  return [...otherBlocks, rows.join('\n')].filter(text => text !== '').map(block)
}

const TABLE_SECTIONS: ReadonlySet<string> = new Set(['TBODY', 'THEAD', 'TFOOT'])

function row({ childNodes }: MarkdownNode, isFirst: boolean): readonly string[] {
  const cells = Array.from(childNodes).filter(({ nodeName }) => nodeName === 'TD' || nodeName === 'TH')
  if (cells.length === 0) return []
  const line = `|${cells.map(cell => ` ${lineOf(cell)} |`).join('')}`
  const isHeading = ({ nodeName }: MarkdownNode): boolean => nodeName === 'TH'
  const hasHeadings = cells.some(isHeading) && cells.every(cell => isHeading(cell) || lineOf(cell) === '')
  return isFirst && hasHeadings ? [line, `|${' --- |'.repeat(cells.length)}`] : [line]
}
