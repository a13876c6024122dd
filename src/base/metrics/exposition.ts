/**
 * Metrics as plain data between threads, their sums, and the text that scrapers read: Prometheus text 0.0.4, or
 * OpenMetrics with exemplars. Pure. Leaf.
 */
import type { Registry } from 'prom-client'

/** A stored trace as an example of an observed value. */
export interface Exemplar {
  readonly traceId: string
  readonly value: number
  /** Unix milliseconds. */
  readonly atMs: number
}

export interface MetricSample {
  readonly value: number
  readonly labels: Readonly<Record<string, string | number>>
  /** Absent: the name of the family. */
  readonly metricName?: string
  readonly exemplar?: Exemplar
}

export interface MetricFamily {
  readonly name: string
  readonly help: string
  /** `counter`, `gauge` or `histogram`. */
  readonly type: string
  readonly values: readonly MetricSample[]
}

/** All metrics of a registry at one moment; plain data. */
export type MetricSnapshot = readonly MetricFamily[]

export async function snapshotOf(registry: Registry): Promise<MetricSnapshot> {
  // The library's types declare the kind as a number, and lack exemplars.
  return (await registry.getMetricsAsJSON()) as unknown as MetricSnapshot
}

/** Adds snapshots, sample by sample. Of the exemplars of a sample the newest is kept. */
export function sumOf(snapshots: readonly MetricSnapshot[]): MetricSnapshot {
  const families = new Map<string, MetricFamily[]>()
  for (const snapshot of snapshots)
    for (const family of snapshot) {
      const sameFamilies = families.get(family.name)
      if (sameFamilies === undefined) families.set(family.name, [family])
      else sameFamilies.push(family)
    }
  return [...families.values()].map(addUp)
}

function addUp(families: readonly MetricFamily[]): MetricFamily {
  const [first] = families
  if (first === undefined) throw new TypeError('there is one at least')
  if (families.length === 1) return first
  const samples = new Map<string, MetricSample>()
  for (const { values } of families)
    for (const sample of values) {
      const key = keyOf(sample)
      const before = samples.get(key)
      samples.set(key, before === undefined ? sample : add(before, sample))
    }
  return { ...first, values: [...samples.values()] }
}

/** All threads list the labels of a metric in the same order. */
function keyOf({ metricName = '', labels }: MetricSample): string {
  let key = metricName
  for (const name in labels) key += `\0${labels[name]}`
  return key
}

function add(first: MetricSample, second: MetricSample): MetricSample {
  const sum = { ...first, value: first.value + second.value }
  if (second.exemplar === undefined) return sum
  const isNewer = first.exemplar === undefined || second.exemplar.atMs > first.exemplar.atMs
  return isNewer ? { ...sum, exemplar: second.exemplar } : sum
}

/** The formats of a scrape, by content type. */
export const EXPOSITION_FORMS = {
  text: 'text/plain; version=0.0.4; charset=utf-8',
  openMetrics: 'application/openmetrics-text; version=1.0.0; charset=utf-8',
} as const
export type ExpositionForm = keyof typeof EXPOSITION_FORMS

/** The versions of OpenMetrics that this output conforms to. */
const OPEN_VERSION = /^(?:1\.0\.0|0\.0\.1)$/

/** The format that a scraper prefers, from its `Accept` header; text if the header names neither. */
export function formOf(accept: string | undefined): ExpositionForm {
  let [text, openMetrics] = [0, 0]
  for (const range of (accept ?? '').split(',')) {
    const [type = '', ...parameters] = range.split(';').map(part => part.trim().toLowerCase())
    const parameterOf = (name: string) =>
      parameters.find(parameter => parameter.startsWith(`${name}=`))?.slice(name.length + 1)
    const weight = Number(parameterOf('q') ?? 1)
    if (type === 'application/openmetrics-text') {
      const version = parameterOf('version')?.replaceAll('"', '')
      if (version === undefined || OPEN_VERSION.test(version)) openMetrics = Math.max(openMetrics, weight)
    } else if (type === 'text/plain') text = Math.max(text, weight)
  }
  return openMetrics > 0 && openMetrics >= text ? 'openMetrics' : 'text'
}

/** The text of a scrape. A metric without values still has its help and type, so that tools know it. */
export function textOf(families: MetricSnapshot, form: ExpositionForm): string {
  const isOpen = form === 'openMetrics'
  const lines: string[] = []
  for (const { name, help, type, values } of families) {
    // In OpenMetrics, the family of a counter lacks the suffix of its samples.
    const family = isOpen && type === 'counter' ? name.replace(/_total$/, '') : name
    lines.push(`# HELP ${family} ${isOpen ? escapeLabel(help) : escapedHelp(help)}`)
    lines.push(`# TYPE ${family} ${type}`)
    for (const sample of values) lines.push(line(name, sample, isOpen))
  }
  lines.push(isOpen ? '# EOF\n' : '')
  return lines.join('\n')
}

function line(
  family: string,
  { metricName = family, labels, value, exemplar }: MetricSample,
  isOpen: boolean,
): string {
  let names = ''
  for (const name in labels) {
    const label = labels[name] ?? ''
    const text = typeof label === 'string' ? escapeLabel(label) : isOpen ? canonical(label) : String(label)
    names += `${names === '' ? '' : ','}${name}="${text}"`
  }
  const sample = `${metricName}${names === '' ? '' : `{${names}}`} ${numeral(value)}`
  if (!isOpen || exemplar === undefined) return sample
  const { traceId, value: exemplarValue, atMs } = exemplar
  return `${sample} # {trace_id="${escapeLabel(traceId)}"} ${numeral(exemplarValue)} ${(atMs / 1000).toFixed(3)}`
}

function numeral(value: number): string {
  if (Number.isFinite(value)) return String(value)
  return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf'
}

/** The bound of a bucket in the form of OpenMetrics: like Go, with a point or an exponent. */
function canonical(bound: number): string {
  const [digits = '', exponent = ''] = bound.toExponential().split('e')
  const power = Number(exponent)
  if (power < -4 || power >= 6)
    return `${digits}e${power < 0 ? '-' : '+'}${String(Math.abs(power)).padStart(2, '0')}`
  return Number.isInteger(bound) ? `${bound}.0` : String(bound)
}

const SPECIAL = /[\\\n"]/

function escapeLabel(text: string): string {
  return SPECIAL.test(text) ? escapedHelp(text).replaceAll('"', '\\"') : text
}

function escapedHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}
