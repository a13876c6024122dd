/**
 * Draws preview.svg: the panels of the dashboard, at their places, filled by a real Prometheus that scraped a real
 * gateway under a short load against the simulated provider. `npx node grafana/preview.ts`, with Debian's package
 * `prometheus`. It shows what the queries answer; Grafana draws it more beautifully.
 */
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
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[]
  readonly fieldConfig?: {
    readonly defaults: {
      readonly unit: string
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

const wait = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))

async function exchange(gateway: GatewayProcess, model: string, stream: boolean, patienceMs?: number) {
  const signal = patienceMs === undefined ? null : AbortSignal.timeout(patienceMs)
  try {
    const reply = await fetch(`${gateway.url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, input: 'Tell me of rivers', stream, max_output_tokens: 80 }),
      signal,
    })
    await reply.text()
  } catch {
    // Leaving early is part of the load.
  }
}

/** Waves of requests of every kind: streams, documents, faults, refusals, clients that leave. */
async function load(gateway: GatewayProcess): Promise<void> {
  const startedMs = performance.now()
  const goes = () => performance.now() - startedMs < LOAD_SECONDS * 1000
  const swell = () => 1 + 0.7 * Math.sin((performance.now() - startedMs) / 9000)
  const lane = async (pauseMs: number, model: string, stream: boolean, patienceMs?: number) => {
    while (goes()) {
      await exchange(gateway, model, stream, patienceMs)
      await wait(pauseMs / swell())
    }
  }
  await Promise.all([
    ...Array.from({ length: 6 }, () => lane(60, `${SIM_SLUG}/write-200-20`, true)),
    ...Array.from({ length: 3 }, () => lane(50, `${SIM_SLUG}/echo`, false)),
    lane(70, `${SIM_SLUG}/chat-echo`, true),
    lane(80, `${SIM_SLUG}/messages-echo`, true),
    lane(90, `${SIM_SLUG}/gemini-echo`, false),
    lane(200, `${SIM_SLUG}/second-is-better`, true),
    lane(1500, `${SIM_SLUG}/chat-fail-cut-reset`, true),
    lane(2000, `${SIM_SLUG}/chat-fail-status`, false),
    lane(500, 'no/such-model', false),
    lane(300, `${SIM_SLUG}/write-200-20`, true, 400),
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
  return found
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
    const said = found.map(
      line =>
        `${line.name === 'restarts' || line.name === 'uptime' ? '' : `${line.name}: `}${shown(line.values.findLast(Number.isFinite) ?? Number.NaN, unit)}`,
    )
    parts.push(text(left + 20, top + height / 2 + 14, said.join(', ') || 'no data', 30, '#73bf69'))
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
  const settings = { providers: [simProvider(url)], models: [...simModels(), ...faults, fallback] }
  const gateway = await startGatewayProcess(t, settings, { GATEWAY_SERVE_THREADS: '2' })
  const prometheus = await startPrometheus(t, gateway.adminUrl, SCRAPE_MS)
  const start = Date.now() / 1000 + 12
  await load(gateway)
  const end = Date.now() / 1000
  const { panels } = dashboard() as { panels: readonly Drawn[] }
  const drawn: string[] = []
  for (const panel of panels) drawn.push(draw(panel, await lines(prometheus, panel, start, end)))
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
