/**
 * The OpenTelemetry variables (`OTEL_…`), which people set for all their services alike: they override the `tracing`
 * group. Values that are meant for other services only, such as `grpc`, turn traces off and are not errors. Pure.
 */
import type { Faults } from '../../base/settings/check.ts'
import { collectorFault, OTLP_PROTOCOLS } from '../../base/telemetry/otlp/terms.ts'
import { type Environment, variable } from './environment.ts'

/** A value and its place. */
interface PlacedValue {
  readonly path: readonly string[]
  readonly value: unknown
}

/** Variables of one signal take precedence over those of all signals. */
function tracesVariable(environment: Environment, name: string): string | null {
  return (
    variable(environment, `OTEL_EXPORTER_OTLP_TRACES_${name}`) ??
    variable(environment, `OTEL_EXPORTER_OTLP_${name}`)
  )
}

/** Share of the requests by sampler; null: `OTEL_TRACES_SAMPLER_ARG` has it. */
const SAMPLERS: Readonly<Record<string, number | null>> = {
  always_on: 1,
  always_off: 0,
  traceidratio: null,
  parentbased_always_on: 1,
  parentbased_always_off: 0,
  parentbased_traceidratio: null,
}

export function readOtelVariables(environment: Environment, faults: Faults): readonly PlacedValue[] {
  const placed: PlacedValue[] = []
  const set = (name: string, value: unknown): void => void placed.push({ path: ['tracing', name], value })
  const isOff =
    variable(environment, 'OTEL_SDK_DISABLED')?.toLowerCase() === 'true' ||
    variable(environment, 'OTEL_TRACES_EXPORTER') === 'none' ||
    tracesVariable(environment, 'PROTOCOL') === 'grpc'
  if (isOff) {
    set('endpoint', null)
    return placed
  }
  for (const [name, variableName] of ADDRESSES) {
    const url = variable(environment, variableName)
    if (url === null) continue
    const fault = collectorFault(url)
    if (fault === null) set(name, url)
    else faults.add(variableName, fault)
  }
  const protocol = tracesVariable(environment, 'PROTOCOL')
  if (protocol !== null) {
    if (OTLP_PROTOCOLS.some(name => name === protocol)) set('protocol', protocol)
    else {
      const isOfTraces = variable(environment, 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL') !== null
      const variableName = `OTEL_EXPORTER_OTLP_${isOfTraces ? 'TRACES_' : ''}PROTOCOL`
      faults.add(variableName, `expected ${OTLP_PROTOCOLS.join(', ')} or grpc`)
    }
  }
  const compression = tracesVariable(environment, 'COMPRESSION')
  if (compression !== null) set('compression', compression === 'gzip' ? 'gzip' : 'none')
  const timeoutMs = Number(tracesVariable(environment, 'TIMEOUT') ?? 0)
  if (Number.isInteger(timeoutMs) && timeoutMs > 0) set('timeoutMs', Math.min(timeoutMs, 86_400_000))
  const headers = pairsIn(tracesVariable(environment, 'HEADERS'))
  if (headers !== null) set('headers', headers)
  readService(environment, set)
  readSampler(environment, set)
  return placed
}

const ADDRESSES = [
  ['endpoint', 'OTEL_EXPORTER_OTLP_ENDPOINT'],
  ['tracesUrl', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'],
] as const

function readService(environment: Environment, set: (name: string, value: unknown) => void): void {
  const resource = pairsIn(variable(environment, 'OTEL_RESOURCE_ATTRIBUTES')) ?? {}
  const { 'service.name': serviceName, ...rest } = resource
  const name = variable(environment, 'OTEL_SERVICE_NAME') ?? serviceName
  if (name !== undefined) set('serviceName', name)
  if (Object.keys(rest).length > 0) set('resource', rest)
}

function readSampler(environment: Environment, set: (name: string, value: unknown) => void): void {
  const sampler = variable(environment, 'OTEL_TRACES_SAMPLER')
  const fixed = sampler === null ? undefined : SAMPLERS[sampler]
  if (fixed === undefined || sampler === null) return
  const ratio = variable(environment, 'OTEL_TRACES_SAMPLER_ARG')
  const share = fixed ?? (ratio === null ? 1 : Number(ratio))
  if (share >= 0 && share <= 1) set('share', share)
  if (sampler.startsWith('parentbased_')) set('trust', 'always')
}

/** `a=1,b=2`, with escapes in values; null: empty. */
function pairsIn(text: string | null): Record<string, string> | null {
  if (text === null) return null
  const pairs = text.split(',').flatMap(pair => {
    const index = pair.indexOf('=')
    const name = pair.slice(0, index).trim()
    return index < 1 || name === '' ? [] : [[name, decode(pair.slice(index + 1).trim())] as const]
  })
  return Object.fromEntries(pairs)
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
