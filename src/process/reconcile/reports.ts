/**
 * The usage reports of providers: how each is requested, and the usage that it names for one day (UTC). One row of
 * REPORTS for each kind of report. Main thread and command line.
 */
import { readFile } from 'node:fs/promises'
import { GatewayError, systemCode } from '../../base/errors.ts'
import { countOrZero, isRecord, recordOrEmpty, records } from '../../base/json.ts'
import { type Usage, ZERO_USAGE } from '../../formats/format.ts'
import type { Egress } from '../../protocol/provider.ts'
import type { Transport } from '../../providers/upstream/transport.ts'
import { wholeReply } from '../../providers/upstream/whole-reply.ts'
import type { REPORT_NAMES } from '../config/list-rows.ts'

/** Usage of one model on one day, as the provider counted it. */
export interface ReportedUsage {
  /** The provider's own name of the model. */
  readonly model: string
  readonly usage: Usage
  /** The amount that the provider billed, in USD; null: the report names tokens only, and the catalogue prices them. */
  readonly usd: number | null
  /** The part of the price that is charged: batches cost half. */
  readonly factor: number
}

/** The administration API of a provider. */
export interface ReportSource {
  /** Without a trailing slash. */
  readonly baseUrl: string
  /** An administration key, which only reads reports; requests of callers never use it. */
  readonly key: string
  readonly egress: Egress | undefined
}

/** Requests one JSON document of the report. @param query without `?` */
type RequestDocument = (path: string, query: string) => Promise<Readonly<Record<string, unknown>>>

interface Report {
  readonly headers: (key: string) => Readonly<Record<string, string>>
  readonly read: (ask: RequestDocument, day: string) => Promise<readonly ReportedUsage[]>
}

export type ReportName = (typeof REPORT_NAMES)[number]

const DAY_SECONDS = 86_400
const BATCH_FACTOR = 0.5
const MAX_PAGES = 100
const PAGE_MAX_BYTES = 8 * 1024 * 1024
const TIMEOUT_MS = 30_000

const REPORTS: Readonly<Record<ReportName, Report>> = {
  // platform.openai.com/docs/api-reference/usage
  openai: {
    headers: key => ({ authorization: `Bearer ${key}` }),
    async read(ask, day) {
      const start = Date.parse(day) / 1000
      const span = `start_time=${start}&end_time=${start + DAY_SECONDS}&bucket_width=1d&limit=1&group_by=model`
      const kinds = [
        { path: '/organization/usage/completions', query: `${span}&batch=false`, factor: 1 },
        { path: '/organization/usage/completions', query: `${span}&batch=true`, factor: BATCH_FACTOR },
        { path: '/organization/usage/embeddings', query: span, factor: 1 },
      ]
      const usages: ReportedUsage[] = []
      for (const { path, query, factor } of kinds)
        for (const result of await results(ask, path, query))
          usages.push({
            model: nameIn(result),
            usage: {
              ...ZERO_USAGE,
              inputTokens: countOrZero(result['input_tokens']),
              cachedTokens: countOrZero(result['input_cached_tokens']),
              cacheWriteTokens: countOrZero(result['input_cache_write_tokens']),
              outputTokens: countOrZero(result['output_tokens']),
            },
            usd: null,
            factor,
          })
      return usages
    },
  },
  // docs.claude.com/en/api/admin-api/usage-cost
  anthropic: {
    headers: key => ({ 'x-api-key': key, 'anthropic-version': '2023-06-01' }),
    async read(ask, day) {
      const until = new Date(Date.parse(day) + DAY_SECONDS * 1000).toISOString().slice(0, 10)
      const span = `starting_at=${day}T00:00:00Z&ending_at=${until}T00:00:00Z&bucket_width=1d&limit=1`
      const query = `${span}&group_by[]=model&group_by[]=service_tier`
      const rows = await results(ask, '/organizations/usage_report/messages', query)
      return rows.map(result => {
        const writes = recordOrEmpty(result['cache_creation'])
        const forAnHour = countOrZero(writes['ephemeral_1h_input_tokens'])
        const cacheWriteTokens = forAnHour + countOrZero(writes['ephemeral_5m_input_tokens'])
        const cachedTokens = countOrZero(result['cache_read_input_tokens'])
        return {
          model: nameIn(result),
          usage: {
            ...ZERO_USAGE,
            inputTokens: countOrZero(result['uncached_input_tokens']) + cachedTokens + cacheWriteTokens,
            cachedTokens,
            cacheWriteTokens,
            ...(forAnHour === 0 ? {} : { cacheWrite1hTokens: forAnHour }),
            outputTokens: countOrZero(result['output_tokens']),
          },
          usd: null,
          factor: result['service_tier'] === 'batch' ? BATCH_FACTOR : 1,
        }
      })
    },
  },
  // openrouter.ai/docs/api/api-reference/analytics/get-user-activity
  openrouter: {
    headers: key => ({ authorization: `Bearer ${key}` }),
    async read(ask, day) {
      const { data } = await ask('/activity', `date=${day}`)
      return records(data)
        .filter(({ date }) => typeof date !== 'string' || date.startsWith(day))
        .map(row => ({
          model: nameIn(row),
          usage: {
            ...ZERO_USAGE,
            inputTokens: countOrZero(row['prompt_tokens']),
            outputTokens: countOrZero(row['completion_tokens']),
            reasoningTokens: countOrZero(row['reasoning_tokens']),
          },
          usd: amountIn(row['usage']),
          factor: 1,
        }))
    },
  },
}

/**
 * The provider's report of one day.
 * @param day YYYY-MM-DD
 * @throws GatewayError, without the words of the provider, which may quote the key; or the reason of the signal
 */
export async function readReport(
  client: Transport,
  name: ReportName,
  source: ReportSource,
  day: string,
  signal: AbortSignal,
): Promise<readonly ReportedUsage[]> {
  const { headers, read } = REPORTS[name]
  const requestDocument: RequestDocument = async (path, query) => {
    const reply = await wholeReply(
      client,
      {
        method: 'GET',
        url: new URL(`${source.baseUrl}${path}?${query}`),
        headers: { accept: 'application/json', ...headers(source.key) },
        body: '',
        headersTimeoutMs: TIMEOUT_MS,
        idleTimeoutMs: TIMEOUT_MS,
        egress: source.egress,
      },
      { maxBytes: PAGE_MAX_BYTES, signal },
    )
    if (reply.status === 401 || reply.status === 403)
      throw unreadable(
        `cannot be read: the provider refused the key (${reply.status}); set keyFile to a file with an administration key`,
      )
    if (reply.status !== 200) throw unreadable(`cannot be read: the provider answered ${reply.status}`)
    const document = parsed(reply.text)
    if (!isRecord(document) || !Array.isArray(document['data']))
      throw unreadable('cannot be read: the reply of the provider is not a usage report')
    return document
  }
  return await read(requestDocument, day)
}

/** All results of a report in buckets, page by page. */
async function results(ask: RequestDocument, path: string, query: string) {
  const rows: Readonly<Record<string, unknown>>[] = []
  let page: string | null = null
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const document = await ask(path, page === null ? query : `${query}&page=${encodeURIComponent(page)}`)
    for (const bucket of records(document['data'])) rows.push(...records(bucket['results']))
    const next = document['next_page']
    if (document['has_more'] !== true || typeof next !== 'string' || next === '') return rows
    page = next
  }
  throw unreadable(`has more than ${MAX_PAGES} pages`)
}

/** The columns of a CSV report that have counts. It must also have `date` and `model`; others are ignored. */
const CSV_COUNTS = {
  input_tokens: 'inputTokens',
  cached_tokens: 'cachedTokens',
  cache_write_tokens: 'cacheWriteTokens',
  output_tokens: 'outputTokens',
} as const

/**
 * Reads a report from a CSV file with a header line, for providers without a report that the gateway knows.
 * @throws GatewayError that names the file, and the line at fault
 */
export async function readCsv(path: string, day: string): Promise<readonly ReportedUsage[]> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    throw unreadable(`${path}: cannot be read (${systemCode(error) ?? 'unknown'})`)
  }
  const [header = '', ...lines] = text.replace(/^\uFEFF/, '').split(/\r?\n/)
  const names = cellsOf(header).map(name => name.toLowerCase())
  for (const column of ['date', 'model'])
    if (!names.includes(column)) throw unreadable(`${path}: the first line must name the column ${column}`)
  return lines.flatMap((line, index) => {
    if (line.trim() === '') return []
    const row = Object.fromEntries(cellsOf(line).map((cell, index) => [names[index] ?? '', cell]))
    if (row['date']?.slice(0, 10) !== day) return []
    const place = `${path}: line ${index + 2}`
    const model = row['model'] ?? ''
    if (model === '') throw unreadable(`${place}: the model is missing`)
    const counts = Object.entries(CSV_COUNTS).map(([column, field]) => {
      const count = Number(row[column] ?? 0)
      if (!Number.isSafeInteger(count) || count < 0)
        throw unreadable(`${place}: ${column} must be a whole number of tokens, 0 or more`)
      return [field, count] as const
    })
    const cost = row['cost_usd'] ?? ''
    const usd = cost === '' ? null : Number(cost)
    if (usd !== null && !Number.isFinite(usd))
      throw unreadable(`${place}: cost_usd must be an amount, such as 1.25`)
    return [{ model, usage: { ...ZERO_USAGE, ...Object.fromEntries(counts) }, usd, factor: 1 }]
  })
}

/** The cells of one line; a cell with commas or quotation marks is quoted, and quotation marks in it are doubled. */
function cellsOf(line: string): string[] {
  const cells = line.match(/(?:"(?:[^"]|"")*"|[^,"]*)(?:,|$)/g) ?? []
  return cells.map(cell => {
    const plain = cell.replace(/,$/, '').trim()
    return plain.startsWith('"') ? plain.slice(1, -1).replaceAll('""', '"') : plain
  })
}

function nameIn(row: Readonly<Record<string, unknown>>): string {
  const { model } = row
  return typeof model === 'string' && model !== '' ? model : 'unknown'
}

function amountIn(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function unreadable(words: string): GatewayError {
  return new GatewayError('provider_unavailable', `the usage report ${words}`)
}
