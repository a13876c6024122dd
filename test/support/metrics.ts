/** The metrics that the product declares, for tests of docs, dashboards and alert rules. */
import type { Registry } from 'prom-client'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { createProcessMetrics } from '../../src/process/threads/process-metrics.ts'

interface Declared {
  readonly name: string
  readonly kind: string
  readonly labelNames: readonly string[]
}

/** Those of all features, but for the names of the conventions. */
export function allMetrics(): Declared[] {
  const { registry, owners } = createProcessMetrics()
  const registries = [createMetrics().registry, registry, ...owners.map(owner => owner.registry)]
  return registries.flatMap(declaredIn)
}

/** Metrics by the names of the conventions for generative AI. */
export function genAiMetrics(): Declared[] {
  const { registry } = createMetrics({
    thread: 'serve-0',
    models: [],
    providers: [],
    genAiName: slug => slug,
  })
  return declaredIn(registry).filter(({ name }) => name.startsWith('gen_ai_'))
}

function declaredIn(registry: Registry): Declared[] {
  return registry.getMetricsAsArray().map(metric => {
    // The library's types leave out what its objects carry.
    const { name, type, labelNames } = metric as unknown as Omit<Declared, 'kind'> & { type: string }
    return { name, kind: type, labelNames }
  })
}

/** One line of a scrape: `name{labels} value`. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** @throws Error when a line is neither a comment nor a sample. */
export function parseScrape(text: string): Sample[] {
  return text
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => {
      const match = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/.exec(line)
      if (match === null) throw new Error(`no sample: ${line}`)
      const labels = [...(match[2] ?? '').matchAll(/([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g)]
      return {
        name: match[1] ?? '',
        labels: Object.fromEntries(labels.map(([, name, value]) => [name ?? '', value ?? ''])),
        value: Number(match[3]),
      }
    })
}
