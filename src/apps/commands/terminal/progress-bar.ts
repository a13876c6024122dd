/**
 * The progress bar, also used by the benches: one self-updating line on a terminal. It fits the width of the terminal,
 * and avoids characters and colours that the terminal does not show. Pure, except for `ProgressBar`.
 */
import { styleText } from 'node:util'
import type { Environment } from '../../../process/config/environment.ts'

/** A text next to the bar. In a narrow terminal, texts with the highest rank are dropped first. */
export interface BarPart {
  readonly text: string
  /** 0 is dropped last. */
  readonly rank: number
  readonly color?: 'red' | 'yellow'
}

interface BarStyle {
  readonly columns: number
  /** True if the bar may use Unicode's block characters. */
  readonly blocks: boolean
  readonly colors: boolean
}

/** The parts of a terminal that the bar uses. */
export interface BarTerminal {
  readonly isTTY?: boolean
  readonly columns?: number
  hasColors?(): boolean
  write(text: string): unknown
}

/** Width of the bar; a wider one would show no more. */
const BAR_CELLS = { min: 8, max: 30 } as const
const GAP = '  '
/** Texts with at least this rank are dropped before the bar. */
const BAR_RANK = 2.5
/** Width of a terminal that reports none, such as a pipe of `script`. */
const DEFAULT_COLUMNS = 80

/** One line that fits the columns. @param share completed part, 0 to 1 */
export function drawnBar(share: number, parts: readonly BarPart[], style: BarStyle): string {
  // Some terminals wrap when the last column is written.
  const width = style.columns - 1
  const edges = style.blocks ? 0 : 2
  const byRank = [
    ...parts.map(part => ({ part, rank: part.rank, length: part.text.length })),
    { part: null, rank: BAR_RANK, length: BAR_CELLS.min + edges },
  ].toSorted((a, b) => a.rank - b.rank)
  const fitting = new Set<BarPart | null>()
  let usedColumns = -GAP.length
  for (const { part, length } of byRank) {
    if (usedColumns + GAP.length + length > width) break
    usedColumns += GAP.length + length
    fitting.add(part)
  }
  const cells = Math.min(BAR_CELLS.max, BAR_CELLS.min + width - usedColumns)
  return [
    ...(fitting.has(null) ? [cellsOf(share, cells, style)] : []),
    ...parts.filter(part => fitting.has(part)).map(part => paintPart(part, style)),
  ].join(GAP)
}

function cellsOf(share: number, cells: number, { blocks, colors }: BarStyle): string {
  const full = Math.floor(Math.min(1, Math.max(0, share)) * cells)
  const [fullCell, emptyCell] = blocks ? ['█', '░'] : ['#', '.']
  const filled = fullCell.repeat(full)
  const bar = `${colors && full > 0 ? paint('green', filled) : filled}${emptyCell.repeat(cells - full)}`
  return blocks ? bar : `[${bar}]`
}

function paintPart({ text, color }: BarPart, { colors }: BarStyle): string {
  return colors && color !== undefined ? paint(color, text) : text
}

function paint(color: 'green' | 'red' | 'yellow', text: string): string {
  return styleText(color, text, { validateStream: false })
}

/** The percentage, rounded down; 100 only when all is done. */
export function percent(done: number, total: number): string {
  return `${total === 0 ? 100 : Math.floor((done / total) * 100)}%`
}

/** True if a line can be redrawn in place. */
export function drawsOver({ isTTY }: BarTerminal, environment: Environment): boolean {
  return isTTY === true && environment['TERM'] !== 'dumb'
}

/** The style of a terminal, which may change while a bar is shown. NO_COLOR is respected. */
export function barStyle(out: BarTerminal, environment: Environment): BarStyle {
  const locale = ['LC_ALL', 'LC_CTYPE', 'LANG']
    .map(name => environment[name])
    .find(value => (value ?? '') !== '')
  return {
    columns: out.columns === undefined || out.columns <= 0 ? DEFAULT_COLUMNS : out.columns,
    blocks: /utf-?8/i.test(locale ?? ''),
    colors: out.hasColors?.() === true,
  }
}

/** Draws the bar on a terminal, and nothing elsewhere. */
export class ProgressBar {
  readonly #out: BarTerminal
  readonly #environment: Environment
  readonly #draws: boolean
  #draw: (() => string) | null = null

  constructor(out: BarTerminal, environment: Environment) {
    this.#out = out
    this.#environment = environment
    this.#draws = drawsOver(out, environment)
  }

  show(share: number, parts: readonly BarPart[]): void {
    if (!this.#draws) return
    this.#draw = () => drawnBar(share, parts, barStyle(this.#out, this.#environment))
    this.#out.write(`\r${this.#draw()}\x1b[K`)
  }

  /** Writes a line above the bar. */
  note(text: string): void {
    this.clear()
    this.#out.write(`${text}\n`)
    if (this.#draw !== null) this.#out.write(this.#draw())
  }

  /** Leaves the bar on the screen, and continues below it. */
  end(): void {
    if (this.#draw !== null) this.#out.write('\n')
    this.#draw = null
  }

  /** Removes the bar. */
  clear(): void {
    if (this.#draw !== null) this.#out.write('\r\x1b[K')
  }
}
