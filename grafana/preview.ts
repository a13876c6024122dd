/**
 * Draws preview.svg: the first screen of the dashboard, filled by a real Prometheus that scraped a real gateway under a
 * short load against the simulated provider. `npx node grafana/preview.ts [SECONDS]`, with Debian's package
 * `prometheus`. It shows what the queries answer; Grafana draws it more beautifully.
 */
import { createHash, randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SIM_SLUG, simModel, simModels, simProvider } from '../src/sim/rows.ts'
import { createSim } from '../src/sim/sim.ts'
import { type GatewayProcess, startGatewayProcess } from '../test/support/gateway-process.ts'
import { missingTools, type Prometheus, startPrometheus } from '../test/support/prometheus.ts'
import { dashboard } from './dashboard.ts'

const SCRAPE_MS = 1000
const RATE_INTERVAL = '10s'
const LOAD_SECONDS = Number(process.argv[2] ?? 90)
const STEP_SECONDS = 2

interface Drawn {
  readonly type: 'row' | 'timeseries' | 'stat'
  readonly title: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly collapsed?: boolean
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit: string
      readonly thresholds: {
        readonly steps: readonly { readonly color: string; readonly value: number | null }[]
      }
      readonly custom?: { readonly stacking: { readonly mode: string } }
    }
  }
}

interface Line {
  readonly name: string
  /** One for each step; NaN where there is no value. */
  readonly values: number[]
}

/** Load */

/** A provider that takes own credentials; here it is the simulated one. */
const OWN_PROVIDER = 'mistral'
const OWN_MODEL = 'mistralai/own'
/** Requests that one key may have open in a thread: fewer than the bursts of the load. */
const OPEN_PER_KEY = 40

const wait = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

/** Answers are read to their end; leaving early is part of the load. */
async function post(
  gateway: GatewayProcess,
  path: string,
  body: object,
  key = gateway.apiKey,
  patienceMs?: number,
) {
  const signal = patienceMs === undefined ? null : AbortSignal.timeout(patienceMs)
  try {
    const reply = await fetch(`${gateway.url}/v1${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal,
    })
    return { status: reply.status, text: await reply.text() }
  } catch {
    return { status: 0, text: '' }
  }
}

/** Management operations answer, or the picture lacks what they are for. */
async function manage(gateway: GatewayProcess, key: string, path: string, body: object) {
  const { status, text } = await post(gateway, path, body, key)
  if (status >= 300 || status === 0) throw new Error(`${path}: ${status} ${text}`)
  return JSON.parse(text) as { data: { id: string } }
}

/** A guardrail for the key of the load, and a credential of its own at a provider. */
async function setUp(gateway: GatewayProcess, key: string): Promise<void> {
  const guardrail = await manage(gateway, key, '/guardrails', {
    name: 'No customer data',
    content_filter_builtins: [{ slug: 'email', action: 'block' }],
  })
  const hash = createHash('sha256').update(gateway.apiKey).digest('hex')
  const path = `/guardrails/${guardrail.data.id}/assignments/keys`
  await manage(gateway, key, path, { key_hashes: [hash] })
  await manage(gateway, key, '/byok', { provider: OWN_PROVIDER, key: randomBytes(16).toString('hex') })
}

const TOOL = { tools: [{ type: 'gateway:datetime' }] }

/**
 * Waves of requests of every kind: streams, documents, tools, batches, own credentials, refusals, clients that leave. In
 * the middle third a provider fails, and a key sends more at once than it may.
 */
async function load(gateway: GatewayProcess): Promise<void> {
  const startedMs = performance.now()
  const share = () => (performance.now() - startedMs) / (LOAD_SECONDS * 1000)
  const always = () => share() < 1
  const trouble = () => share() > 0.35 && share() < 0.65
  const swell = () => 1 + 0.7 * Math.sin((performance.now() - startedMs) / 9000)
  const lane = async (pauseMs: number, once: () => Promise<unknown>, when = always) => {
    while (always()) {
      if (when()) await once()
      await wait(pauseMs / swell())
    }
  }
  const ask =
    (model: string, more: object = {}, patienceMs?: number) =>
    () =>
      post(
        gateway,
        '/responses',
        { model, input: 'Tell me of rivers', max_output_tokens: 80, ...more },
        gateway.apiKey,
        patienceMs,
      )
  const stream = { stream: true }
  const batch = {
    endpoint: '/v1/responses',
    model: `${SIM_SLUG}/echo`,
    requests: Array.from({ length: 20 }, (_, at) => ({ custom_id: String(at), body: { input: 'Hello' } })),
  }
  await Promise.all([
    ...Array.from({ length: 6 }, () => lane(200, ask(`${SIM_SLUG}/write-200-20`, stream))),
    ...Array.from({ length: 3 }, () => lane(150, ask(`${SIM_SLUG}/echo`))),
    lane(150, ask(`${SIM_SLUG}/chat-echo`, stream)),
    lane(150, ask(`${SIM_SLUG}/messages-echo`, stream)),
    lane(200, ask(`${SIM_SLUG}/gemini-echo`)),
    lane(200, ask(`${SIM_SLUG}/call`, TOOL)),
    lane(150, ask(OWN_MODEL, stream)),
    lane(500, ask('no/such-model')),
    lane(500, ask(`${SIM_SLUG}/echo`, { input: 'Write to ada@example.com' })),
    lane(300, ask(`${SIM_SLUG}/write-200-20`, stream, 400)),
    lane(5000, () => post(gateway, '/batches', batch)),
    lane(150, ask(`${SIM_SLUG}/second-is-better`, stream), trouble),
    lane(800, ask(`${SIM_SLUG}/chat-fail-cut-reset`, stream), trouble),
    lane(800, ask(`${SIM_SLUG}/chat-fail-status`), trouble),
    lane(
      2000,
      () => Promise.all(Array.from({ length: 60 }, () => ask(`${SIM_SLUG}/write-200-20`, stream)())),
      trouble,
    ),
  ])
}

/** Drawing */

const WIDTH = 1440
const UNIT = WIDTH / 24
const LINE = 24
const COLORS = [
  '#73bf69',
  '#f2cc0c',
  '#5794f2',
  '#ff780a',
  '#b877d9',
  '#e02f44',
  '#37a2a2',
  '#c4a000',
  '#8ab8ff',
  '#ffa6b0',
]

const escaped = (text: string) => text.replace(/[&<>]/g, sign => `&#${sign.charCodeAt(0)};`)

/** A number as Grafana would show it in this unit. */
function shown(value: number, unit: string): string {
  if (!Number.isFinite(value)) return '–'
  const short = (amount: number) =>
    amount === 0 ? '0' : amount >= 100 ? amount.toFixed(0) : String(Number(amount.toPrecision(3)))
  const scaled = (base: number, names: readonly string[]) => {
    let rest = value
    let step = 0
    while (rest >= base && step < names.length - 1) {
      rest /= base
      step++
    }
    return `${short(rest)} ${names[step]}`.trim()
  }
  if (unit === 's')
    return value >= 1
      ? `${short(value)} s`
      : value >= 1e-3
        ? `${short(value * 1e3)} ms`
        : `${short(value * 1e6)} µs`
  if (unit === 'percentunit') return `${short(value * 100)} %`
  if (unit === 'bytes') return scaled(1024, ['B', 'KiB', 'MiB', 'GiB'])
  if (unit === 'Bps') return scaled(1000, ['B/s', 'kB/s', 'MB/s'])
  if (unit === 'reqps') return `${short(value)} req/s`
  if (unit === 'ops') return `${short(value)} /s`
  if (unit === 'currencyUSD') return `$${short(value)}`
  return scaled(1000, ['', 'K', 'M'])
}

async function lines(prometheus: Prometheus, panel: Drawn, start: number, end: number): Promise<Line[]> {
  const steps = Math.floor((end - start) / STEP_SECONDS) + 1
  const found: Line[] = []
  for (const { expr, legendFormat } of panel.targets ?? []) {
    const asked = expr.replaceAll('$__rate_interval', RATE_INTERVAL).replaceAll('$instance', '.*')
    for (const { metric, values } of await prometheus.askRange(asked, start, end, STEP_SECONDS)) {
      const line = new Array<number>(steps).fill(Number.NaN)
      for (const [seconds, value] of values)
        line[Math.round((seconds - start) / STEP_SECONDS)] = Number(value)
      const name = legendFormat.replace(/\{\{(\w+)\}\}/g, (_all, label: string) => metric[label] ?? '')
      found.push({ name: name.replace(/127\.0\.0\.1:\d+ ?/, '') || 'gateway', values: line })
    }
  }
  // The greatest first: a long legend is cut.
  const sum = ({ values }: Line) =>
    values.reduce((all, value) => all + (Number.isFinite(value) ? value : 0), 0)
  return found.sort((a, b) => sum(b) - sum(a))
}

function draw(panel: Drawn, found: readonly Line[]): string {
  const { x, y, w, h } = panel.gridPos
  const [left, top, width, height] = [x * UNIT + 4, y * LINE + 4, w * UNIT - 8, h * LINE - 8]
  if (panel.type === 'row') return text(left, top + 16, panel.title, 15, '#d8d9da', 'bold')
  const unit = panel.fieldConfig?.defaults.unit ?? 'short'
  const parts = [
    `<rect x="${left}" y="${top}" width="${width}" height="${height}" rx="3" fill="#181b1f" stroke="#2c3235"/>`,
    text(left + 10, top + 18, panel.title, 12, '#d8d9da', 'bold'),
  ]
  if (panel.type === 'stat') {
    const [value] = found.map(line => line.values.findLast(Number.isFinite) ?? Number.NaN)
    const steps = panel.fieldConfig?.defaults.thresholds.steps ?? []
    const reached = steps.findLast(
      step => value !== undefined && (step.value === null || value >= step.value),
    )
    const color = reached?.color === 'red' ? '#e02f44' : '#73bf69'
    const said = shown(value ?? Number.NaN, unit)
    parts.push(text(left + width / 2, top + height / 2 + 24, said, 30, color, 'bold', 'middle'))
    return parts.join('\n')
  }
  const stacked = panel.fieldConfig?.defaults.custom?.stacking.mode === 'normal'
  const plot = { left: left + 66, top: top + 30, width: width - 80, height: height - 66 }
  const floors: number[] = []
  const tops = found.map(line =>
    line.values.map((value, step) => {
      if (!stacked) return value
      const floor = floors[step] ?? 0
      floors[step] = floor + (Number.isFinite(value) ? value : 0)
      return floors[step]
    }),
  )
  const max = Math.max(...tops.flat().filter(Number.isFinite), 0) * 1.1 || 1
  for (const share of [0, 0.5, 1]) {
    const at = plot.top + plot.height * (1 - share)
    parts.push(`<path d="M${plot.left} ${at.toFixed(1)}h${plot.width}" stroke="#2c3235"/>`)
    parts.push(text(plot.left - 6, at + 4, shown(max * share, unit), 10, '#8e9aa5', 'normal', 'end'))
  }
  const point = (step: number, value: number, steps: number) =>
    `${(plot.left + (plot.width * step) / (steps - 1)).toFixed(1)} ${(plot.top + plot.height * (1 - value / max)).toFixed(1)}`
  for (const [index, values] of tops.entries()) {
    const color = COLORS[index % COLORS.length] ?? '#fff'
    const points = values.flatMap((value, step) =>
      Number.isFinite(value) ? [point(step, value, values.length)] : [],
    )
    if (points.length === 0) continue
    parts.push(`<path d="M${points.join('L')}" fill="none" stroke="${color}" stroke-width="1.4"/>`)
    if (!stacked) continue
    const below = index === 0 ? values.map(() => 0) : (tops[index - 1] ?? [])
    const back = below.map((value, step) => point(step, value, below.length)).toReversed()
    parts.push(`<path d="M${[...points, ...back].join('L')}Z" fill="${color}" fill-opacity="0.3"/>`)
  }
  let at = plot.left - 50
  for (const [index, line] of found.entries()) {
    const wide = line.name.length * 6 + 22
    if (at + wide > left + width) break
    parts.push(
      `<rect x="${at}" y="${top + height - 20}" width="10" height="4" fill="${COLORS[index % COLORS.length]}"/>`,
    )
    parts.push(text(at + 14, top + height - 14, line.name, 10, '#9fa7b3'))
    at += wide
  }
  if (found.length === 0)
    parts.push(text(left + width / 2, top + height / 2, 'no data', 12, '#8e9aa5', 'normal', 'middle'))
  return parts.join('\n')
}

function text(
  x: number,
  y: number,
  words: string,
  size: number,
  color: string,
  weight = 'normal',
  anchor = 'start',
): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" fill="${color}" font-weight="${weight}" text-anchor="${anchor}">${escaped(words)}</text>`
}

/** The whole */

const missing = missingTools()
if (missing.length > 0) throw new Error(`${missing.join(' and ')} not found: install Debian's prometheus`)

const endings: (() => unknown)[] = []
const t = { teardown: (end: () => unknown) => void endings.push(end) }
try {
  const sim = createSim({ keepRequests: 0 })
  const { url } = await sim.listen()
  endings.push(() => sim.close())
  const faults = ['fail-cut-reset', 'fail-status'].map(name => simModel(name, 'openai-chat'))
  const fallback = {
    ...simModel('echo', 'openai-chat'),
    id: `${SIM_SLUG}/second-is-better`,
    endpoints: ['fail-status-503', 'echo'].flatMap(name => simModel(name, 'openai-chat').endpoints),
  }
  const [echo] = simModel('echo', 'openai-chat').endpoints
  const settings = {
    providers: [simProvider(url), { slug: OWN_PROVIDER, baseUrl: url, proxy: 'none' }],
    models: [
      ...simModels(),
      ...faults,
      fallback,
      { id: OWN_MODEL, endpoints: [{ ...echo, provider: OWN_PROVIDER }] },
    ],
    limits: { openPerKey: OPEN_PER_KEY },
  }
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const gateway = await startGatewayProcess(t, settings, {
    GATEWAY_SERVE_THREADS: '2',
    GATEWAY_MANAGEMENT_KEY: managementKey,
    GATEWAY_VAULT_KEYS: `preview:${randomBytes(32).toString('base64')}`,
  })
  const prometheus = await startPrometheus(t, gateway.adminUrl, SCRAPE_MS)
  await setUp(gateway, managementKey)
  const start = Date.now() / 1000 + 12
  // The last answers come when the load is over: they are not part of the picture.
  const end = Date.now() / 1000 + LOAD_SECONDS
  await load(gateway)
  const { panels: top } = dashboard() as { panels: readonly Drawn[] }
  const panels = top.filter(panel => panel.collapsed !== true)
  const drawn: string[] = []
  for (const panel of panels) {
    const found = await lines(prometheus, panel, start, end)
    if (panel.type !== 'row' && found.length === 0) throw new Error(`${panel.title} has no data`)
    drawn.push(draw(panel, found))
  }
  const height = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h)) * LINE + 8
  writeFileSync(
    join(import.meta.dirname, 'preview.svg'),
    [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" font-family="Inter, Helvetica, Arial, sans-serif">`,
      '<title>The Sluice dashboard under a short load against the simulated provider</title>',
      `<rect width="${WIDTH}" height="${height}" fill="#111217"/>`,
      ...drawn,
      '</svg>',
      '',
    ].join('\n'),
  )
} finally {
  for (const end of endings.toReversed()) await end()
}
