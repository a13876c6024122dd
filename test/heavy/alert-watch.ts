/**
 * The shipped alert rules with shorter times, in a real Prometheus next to a running gateway. Shows if an alert fires,
 * its text, if its section of the runbook links to an existing page, and if it resolves.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { parse } from 'yaml'
import { eventually } from '../support/stream-probe.ts'
import { type Prometheus, startPrometheus } from './prometheus.ts'

const ROOT = join(import.meta.dirname, '../..')
const SCRAPE_MS = 500
/** For an alert to fire, or to end: much longer than the longest window, since the machine may be busy. */
const PATIENCE_MS = 180_000

/** What the times of the rules become: windows, offsets, and `for`. The expressions stay what they are. */
const TIMES: Readonly<Record<string, string>> = {
  '1m': '1s',
  '2m': '1s',
  '5m': '10s',
  '10m': '10s',
  '15m': '15s',
  '20m': '15s',
  '30m': '30s',
  '1h': '15s',
  '6h': '40s',
  '1d': '40s',
}
const FOR = '1s'
/** An hour in seconds, where a rule says it so. */
const HOUR = { shipped: / 3600\b/g, short: ' 15' }

interface Rule {
  readonly alert?: string
  readonly expr: string
  readonly for?: string
  readonly annotations?: Readonly<Record<string, string>>
}

interface Rules {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[]
}

const SHIPPED = parse(readFileSync(join(ROOT, 'grafana/alerts.yaml'), 'utf8')) as Rules
/** The names of all alerts. */
export const ALERTS: readonly string[] = SHIPPED.groups.flatMap(({ rules }) =>
  rules.flatMap(({ alert }) => alert ?? []),
)

/** The expression with the times of the table. @throws Error for a time that is not in it */
export function shortened(expr: string): string {
  const short = (time: string): string => {
    const found = TIMES[time]
    if (found === undefined) throw new Error(`no short time for ${time}: ${expr}`)
    return found
  }
  return expr
    .replaceAll(/\[(\w+)\]/g, (_, time: string) => `[${short(time)}]`)
    .replaceAll(/\boffset (\w+)/g, (_, time: string) => `offset ${short(time)}`)
    .replaceAll(HOUR.shipped, HOUR.short)
}

function shortRules(): Rules {
  const rule = ({ expr, for: lasting, ...rest }: Rule): Rule => ({
    ...rest,
    expr: shortened(expr),
    ...(lasting === undefined ? {} : { for: FOR }),
  })
  return { groups: SHIPPED.groups.map(({ name, rules }) => ({ name, rules: rules.map(rule) })) }
}

interface Alert {
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly state: 'pending' | 'firing'
}

/** The section of an alert in the runbook. @throws Error if it has none */
function sectionOf(name: string): string {
  const page = readFileSync(join(ROOT, 'docs/runbook.md'), 'utf8')
  const section = page.split(/^### /m).find(part => part.startsWith(`${name}\n`))
  if (section === undefined) throw new Error(`no section of ${name}`)
  return section.split(/^## /m)[0] ?? ''
}

/** Queries in backticks: metrics with or without labels, and expressions over them. */
const queriesIn = (section: string): readonly string[] =>
  [...section.matchAll(/`([^`]+)`/g)]
    .map(([, text = '']) => text)
    .filter(text =>
      /^(?:(?:sum|increase|rate|histogram_quantile)\b.*\(|gateway_\w+(?:\{.*\})?$|process_\w+$|up\{)/.test(
        text,
      ),
    )

export interface AlertWatch {
  readonly prometheus: Prometheus
  /** Those that fired and ended. */
  readonly seen: ReadonlySet<string>
  /**
   * Waits until it fires; then checks its annotations, and that each query of its section of the runbook has an
   * answer, but for those that are named.
   */
  fires(
    t: Test,
    name: string,
    labels?: Readonly<Record<string, string>>,
    without?: readonly string[],
  ): Promise<void>
  ends(t: Test, name: string): Promise<void>
}

/** Scrapes the admin port at this address with the short rules. */
export async function watchAlerts(
  t: Pick<Test, 'teardown'>,
  adminUrl: string,
  scrapeMs = SCRAPE_MS,
): Promise<AlertWatch> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'rules.yaml')
  writeFileSync(file, JSON.stringify(shortRules()))
  const prometheus = await startPrometheus(t, adminUrl, scrapeMs, file)
  const seen = new Set<string>()
  const firing = async (name: string): Promise<readonly Alert[]> => {
    const { data } = (await prometheus.get('/api/v1/alerts')) as { data: { alerts: readonly Alert[] } }
    return data.alerts.filter(({ state, labels }) => state === 'firing' && labels['alertname'] === name)
  }
  return {
    prometheus,
    seen,
    async fires(t, name, labels = {}, without = []) {
      const sinceMs = performance.now()
      let found: Alert | undefined
      const isFound = async () => {
        found = (await firing(name)).find(alert =>
          Object.entries(labels).every(([label, value]) => alert.labels[label] === value),
        )
        return found !== undefined
      }
      if (!t.ok(await eventually(isFound, PATIENCE_MS), `${name} fires`)) return
      t.comment(
        `${name} fired after ${((performance.now() - sinceMs) / 1000).toFixed(1)} s: ${found?.annotations['description']}`,
      )
      const { runbook_url = '', summary = '', description = '' } = found?.annotations ?? {}
      t.equal(runbook_url, `docs/runbook.md#${name.toLowerCase()}`)
      for (const text of [summary, description])
        t.match(text, /^(?!.*(?:\{\{|<no value>|<error|NaN|Inf))\S.*\S$/, `${name}: ${text}`)
      const section = sectionOf(name)
      t.match(section, new RegExp(`^\\*\\*Means\\*\\* \\(${found?.labels['severity']}\\)`, 'm'), 'severity')
      for (const query of queriesIn(section)) {
        if (without.includes(query)) continue
        // A histogram is named without its parts.
        const forms = /^\w+$/.test(query) ? [query, `${query}_count`] : [shortened(query)]
        const answers = async () =>
          (await Promise.all(forms.map(form => prometheus.ask(form)))).some(({ length }) => length > 0)
        t.ok(await eventually(answers, 10_000), `${name}: the runbook's ${query} has an answer`)
      }
    },
    async ends(t, name) {
      const sinceMs = performance.now()
      if (
        t.ok(await eventually(async () => (await firing(name)).length === 0, PATIENCE_MS), `${name} ends`)
      ) {
        seen.add(name)
        t.comment(`${name} ended after ${((performance.now() - sinceMs) / 1000).toFixed(1)} s`)
      }
    },
  }
}
