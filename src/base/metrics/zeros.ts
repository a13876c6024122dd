/**
 * Adds the series without an event so far, with the value 0: those of all label values in `fromZero` of a declaration.
 * Done once for each scrape, so that threads do not send zeros to the main thread. Pure. Leaf.
 */
import type { Declaration } from './declaration.ts'
import type { MetricFamily, MetricSample, MetricSnapshot } from './exposition.ts'

type Labels = MetricSample['labels']

/** The families of the snapshot, each with its zero series; families that no thread has reported are added. */
export function withZeros(snapshot: MetricSnapshot, declarations: readonly Declaration[]): MetricSnapshot {
  const families = new Map(snapshot.map(family => [family.name, family]))
  for (const declaration of declarations) {
    const { name, help, kind } = declaration
    const family = families.get(name) ?? { name, help, type: kind, values: [] }
    families.set(name, completed(family, declaration))
  }
  return [...families.values()]
}

function completed(family: MetricFamily, declaration: Declaration): MetricFamily {
  const { labels: names, fromZero } = declaration
  if (fromZero === undefined) return family
  const seenLabels = new Map<string, Labels>()
  for (const { labels, metricName } of family.values)
    if (metricName === undefined || metricName.endsWith('_count'))
      seenLabels.set(keyOf(names, labels), labels)
  const zeros: MetricSample[] = []
  const startedGroups = new Set<string>()
  const begin = (knownLabels: Labels): void => {
    // A label with a value that the declaration does not list, such as a route or a provider, keeps that value.
    const choices = names.map(name => {
      const values = fromZero[name] ?? []
      const value = knownLabels[name]
      return value === undefined || values.includes(String(value)) ? values : [value]
    })
    const group = choices.map(values => (values.length === 1 ? values[0] : '')).join('\n')
    if (startedGroups.has(group)) return
    startedGroups.add(group)
    for (const labels of combinations(names, choices))
      if (!seenLabels.has(keyOf(names, labels))) addZeros(zeros, declaration, labels)
  }
  begin({})
  for (const labels of seenLabels.values()) begin(labels)
  return zeros.length === 0 ? family : { ...family, values: [...family.values, ...zeros] }
}

function keyOf(names: readonly string[], labels: Labels): string {
  return names.map(name => labels[name]).join('\n')
}

/** Every combination of one value of each label; none if a label has no value. */
function combinations(
  names: readonly string[],
  choices: readonly (readonly (string | number)[])[],
): Labels[] {
  return names.reduce<Labels[]>(
    (rows, name, index) =>
      rows.flatMap(row => (choices[index] ?? []).map(value => ({ ...row, [name]: value }))),
    [{}],
  )
}

function addZeros(zeros: MetricSample[], declaration: Declaration, labels: Labels): void {
  if (declaration.kind !== 'histogram') {
    zeros.push({ value: 0, labels })
    return
  }
  const { name, buckets } = declaration
  for (const le of [...buckets, '+Inf'])
    zeros.push({ metricName: `${name}_bucket`, value: 0, labels: { le, ...labels } })
  zeros.push({ metricName: `${name}_sum`, value: 0, labels })
  zeros.push({ metricName: `${name}_count`, value: 0, labels })
}
