/** The report of `sluice prove` as text for a terminal. Pure. */
import type { ProvePlan } from '../../prove/prove.ts'
import type { CheckResult, CheckStatus, ProveReport } from '../../prove/report.ts'
import { count, counted } from '../terminal/text.ts'

const SIGNS: Readonly<Record<CheckStatus, string>> = {
  pass: 'pass',
  fail: 'FAIL',
  warning: 'warn',
  skipped: 'skip',
}
const SEEN_MAX_CHARS = 160
const REPEAT_MAX_CHARS = 600

export function planText({ model, dialects, checks, requests }: ProvePlan): string {
  return `tests ${model} through ${dialects.join(' and ')}: ${counted(checks, 'check')}, about ${count(requests)} requests`
}

/**
 * One line per check; skipped checks that cannot be repeated have one line per reason. Failed checks and warnings also
 * show what was expected, why it matters, and how to repeat the check.
 */
export function reportText({ checks, summary, figures, ration }: ProveReport): string[] {
  const width = Math.max(...checks.map(({ id }) => id.length))
  const skipped = new Map<string, number>()
  const rows = checks.flatMap(check => {
    if (check.status === 'skipped' && check.repeat === null) {
      skipped.set(check.seen, (skipped.get(check.seen) ?? 0) + 1)
      return []
    }
    return [row(check, width), ...details(check)]
  })
  return [
    ...rows,
    ...[...skipped].map(([why, times]) => `skip  ${counted(times, 'check')}: ${why}`),
    '',
    ...figures.firstEvent.map(
      ({ dialect, gateway, direct, addedMs }) =>
        `first bytes of a stream, ${dialect}: ${ms(gateway.medianMs)} (95%: ${ms(gateway.p95Ms)}, ${gateway.samples} streams)${
          direct === null || addedMs === null
            ? ''
            : `; without the gateway ${ms(direct.medianMs)}, so it adds ${ms(addedMs)}`
        }`,
    ),
    ...figures.cpu.map(
      ({ dialect, microsPerEvent, events, streams }) =>
        `CPU, ${dialect}: ${microsPerEvent.toFixed(1)} us per event (${count(events)} events in ${streams} streams)`,
    ),
    `${count(summary.pass)} passed, ${count(summary.fail)} failed, ${counted(summary.warning, 'warning')}, ${count(summary.skipped)} skipped; ${count(ration.sent)} requests in ${(ration.spentMs / 1000).toFixed(1)} s`,
  ]
}

function row({ id, dialect, status, seen: observation }: CheckResult, width: number): string {
  return `${SIGNS[status]}  ${id.padEnd(width)}  ${(dialect ?? '').padEnd(9)}  ${short(observation, SEEN_MAX_CHARS)}`
}

function details({ status, expected, matters, basis, repeat }: CheckResult): string[] {
  if (status !== 'fail' && status !== 'warning') return []
  return [
    `      expected: ${expected} (${basis})`,
    `      why it matters: ${matters}`,
    ...(repeat === null ? [] : [`      repeat: ${short(repeat, REPEAT_MAX_CHARS)}`]),
  ]
}

function short(text: string, maxChars: number): string {
  return text.length <= maxChars ? text : `${text.slice(0, maxChars - 3)}...`
}

function ms(value: number): string {
  return `${value.toFixed(1)} ms`
}
