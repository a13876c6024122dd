/** The screen of `sluice top`: a summary as lines that fit the width of a terminal. Pure. */
import { styleText } from 'node:util'
import { plain, shortUsd } from '../terminal/text.ts'
import type { Summary } from './summary.ts'

export interface ScreenStyle {
  readonly columns: number
  /** Rows of the terminal; infinite if lines may scroll. */
  readonly rows: number
  readonly colors: boolean
}

type Color = 'red' | 'yellow' | 'green' | 'dim' | 'bold'

/** A column of a table. In a narrow terminal, columns with the highest rank are dropped first. */
interface Column<Row> {
  readonly name: string
  /** 0 is never dropped. */
  readonly rank: number
  readonly isNumber?: true
  /** Gets the remaining width. */
  readonly isWide?: true
  readonly of: (row: Row) => string
  readonly color?: (row: Row) => Color | null
}

/** A shorter part of a name would be useless. */
const MIN_WIDE_CHARS = 14
const MAX_WIDE_CHARS = 40
const GAP_CHARS = 2
/** Maximum rows of models if the terminal is high enough; the others are for requests. */
const MAX_MODELS = 8

type Model = Summary['models'][number]
type Request = Summary['latest'][number]

const MODEL_COLUMNS: readonly Column<Model>[] = [
  { name: 'MODEL', rank: 0, isWide: true, of: ({ model }) => plain(model ?? '(none, or others)') },
  { name: 'REQUESTS', rank: 0, isNumber: true, of: ({ requests }) => short(requests) },
  {
    name: 'FAILED',
    rank: 1,
    isNumber: true,
    of: ({ failed, requests }) => (failed === 0 ? '0' : `${short(failed)} ${share(failed, requests)}`),
    color: ({ failed }) => (failed > 0 ? 'red' : null),
  },
  { name: 'FIRST', rank: 2, isNumber: true, of: ({ first_token_ms: { p50 } }) => time(p50) },
  { name: 'P95', rank: 4, isNumber: true, of: ({ first_token_ms: { p95 } }) => time(p95) },
  { name: 'COST', rank: 3, isNumber: true, of: ({ cost }) => shortUsd(cost) },
]

const REQUEST_COLUMNS: readonly Column<Request>[] = [
  { name: 'TIME', rank: 1, of: ({ created_at: at }) => clockOf(at) },
  {
    name: 'STATUS',
    rank: 0,
    isNumber: true,
    of: ({ status }) => String(status),
    color: ({ outcome }) => (outcome === 'completed' ? null : outcome === 'failed' ? 'red' : 'yellow'),
  },
  { name: 'MODEL', rank: 0, isWide: true, of: ({ model }) => plain(model ?? '-') },
  { name: 'PROVIDER', rank: 4, of: ({ provider }) => plain(provider ?? '-', 20) },
  { name: 'FIRST', rank: 2, isNumber: true, of: ({ first_token_ms: first }) => time(first) },
  { name: 'TOTAL', rank: 3, isNumber: true, of: ({ duration_ms: total }) => time(total) },
  {
    name: 'TOKENS',
    rank: 5,
    isNumber: true,
    of: ({ input_tokens: input, output_tokens: output }) => `${countOrDash(input)}>${countOrDash(output)}`,
  },
  { name: 'COST', rank: 3, isNumber: true, of: ({ cost }) => (cost === null ? '-' : shortUsd(cost)) },
  { name: 'ERROR', rank: 6, of: ({ error }) => plain(error ?? '', 30), color: () => 'red' },
]

export function screenOf(summary: Summary, style: ScreenStyle): string[] {
  const { money, requests, failed, first_token_ms: first } = summary
  const seconds = summary.window_seconds
  const window = seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} min`
  const header = [
    joinParts(style, [
      paint(style, 'bold', `sluice ${plain(summary.version, 20)}`),
      clockOf(summary.now),
      `${short(summary.in_flight)} running`,
      `${short(summary.open_streams)} streams`,
    ]),
    ...healthOf(summary, style),
    joinParts(style, [
      `today ${shortUsd(money.today)}`,
      `month ${shortUsd(money.month)}`,
      ...(money.month_at_this_pace === null ? [] : [`at this pace ${shortUsd(money.month_at_this_pace)}`]),
      ...(money.credits_left === null ? [] : [`credits left ${shortUsd(money.credits_left)}`]),
    ]),
    joinParts(style, [
      `${window}: ${short(requests)} requests`,
      `failed ${share(failed, requests)}`,
      `first token ${time(first.p50)}, p95 ${time(first.p95)}`,
      shortUsd(summary.cost),
    ]),
    '',
  ]
  const freeRows = Math.max(0, style.rows - header.length - 1)
  const models = summary.models.slice(0, Math.min(MAX_MODELS, Math.max(1, Math.floor(freeRows / 3))))
  const modelLines =
    models.length === 0 ? ['no requests in this time'] : tableOf(MODEL_COLUMNS, models, style)
  const requestRows = Math.max(0, freeRows - modelLines.length - 2)
  const latest = summary.latest.slice(0, requestRows)
  return [
    ...header,
    ...modelLines,
    ...(latest.length === 0 ? [] : ['', ...tableOf(REQUEST_COLUMNS, latest, style)]),
  ]
}

function healthOf({ problems }: Summary, style: ScreenStyle): string[] {
  if (problems.length === 0) return [paint(style, 'green', 'no problems')]
  return problems.map(({ text, is_serious: isSerious }) =>
    paint(style, isSerious ? 'red' : 'yellow', shorten(`! ${plain(text)}`, style.columns)),
  )
}

/** Parts next to each other; those that do not fit are dropped. */
function joinParts(style: ScreenStyle, texts: readonly string[]): string {
  let line = ''
  let width = 0
  for (const text of texts) {
    const partWidth = widthOf(text) + (line === '' ? 0 : GAP_CHARS)
    if (width + partWidth > style.columns) break
    line += `${line === '' ? '' : ' '.repeat(GAP_CHARS)}${text}`
    width += partWidth
  }
  return line
}

function tableOf<Row>(columns: readonly Column<Row>[], rows: readonly Row[], style: ScreenStyle): string[] {
  let shownColumns = columns
  const cells = new Map(columns.map(column => [column, rows.map(row => column.of(row))]))
  const widthOfColumn = (column: Column<Row>): number =>
    Math.max(column.name.length, ...(cells.get(column) ?? []).map(cell => cell.length))
  const fixedWidth = (): number =>
    shownColumns.reduce((sum, column) => sum + (column.isWide === true ? 0 : widthOfColumn(column)), 0) +
    GAP_CHARS * (shownColumns.length - 1)
  for (;;) {
    const last = shownColumns.toSorted((a, b) => b.rank - a.rank)[0]
    if (fixedWidth() + MIN_WIDE_CHARS <= style.columns || last === undefined || last.rank === 0) break
    shownColumns = shownColumns.filter(column => column !== last)
  }
  const wide = Math.max(4, Math.min(MAX_WIDE_CHARS, style.columns - fixedWidth()))
  const line = (
    cell: (column: Column<Row>) => string,
    color: (column: Column<Row>) => Color | null,
  ): string =>
    shownColumns
      .map((column, index) => {
        const width = column.isWide === true ? Math.min(wide, widthOfColumn(column)) : widthOfColumn(column)
        const text = shorten(cell(column), width)
        const isLast = index === shownColumns.length - 1
        const padded = column.isNumber === true ? text.padStart(width) : isLast ? text : text.padEnd(width)
        const tone = color(column)
        return tone === null ? padded : paint(style, tone, padded)
      })
      .join(' '.repeat(GAP_CHARS))
      .trimEnd()
  return [
    line(
      ({ name }) => name,
      () => 'dim',
    ),
    ...rows.map((row, rowIndex) =>
      line(
        column => cells.get(column)?.[rowIndex] ?? '',
        column => column.color?.(row) ?? null,
      ),
    ),
  ]
}

function shorten(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}~`
}

function paint({ colors }: ScreenStyle, color: Color, text: string): string {
  return colors ? styleText(color, text, { validateStream: false }) : text
}

/** The width without colour codes. */
function widthOf(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: colors begin with one
  return text.replace(/\u001b\[\d+m/g, '').length
}

/** 12, 1.2k, 3.4M. */
function short(number: number): string {
  if (number < 1_000) return String(Math.round(number))
  if (number < 999_500) return `${(number / 1_000).toFixed(number < 9_950 ? 1 : 0)}k`
  return `${(number / 1_000_000).toFixed(1)}M`
}

function countOrDash(number: number | null): string {
  return number === null ? '-' : short(number)
}

function share(part: number, total: number): string {
  return total === 0 ? '-' : `${Number(((part / total) * 100).toFixed(1))}%`
}

/** 12ms, 1.2s, 3m. */
function time(ms: number | null): string {
  if (ms === null) return '-'
  if (ms < 1_000) return `${Math.round(ms)}ms`
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)}s` : `${Math.round(ms / 60_000)}m`
}

/** 12:34:56, UTC. */
function clockOf(instant: string): string {
  return /T(\d{2}:\d{2}:\d{2})/.exec(instant)?.[1] ?? '-'
}
