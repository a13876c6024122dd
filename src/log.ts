/**
 * JSON lines with an allow-list of fields. There is deliberately no way to log an object as it is:
 * redaction of named paths is not a defence, not accepting the field is. Leaf.
 */
import { type DestinationStream, pino } from 'pino'
import type { FailureCode } from './errors.ts'

/** One line per exchange, written at its end. No bodies, prompts, header values or keys. */
export interface ExchangeLine {
  readonly id: string
  readonly method: string
  /** Route template, never the raw URL. */
  readonly route: string
  readonly status: number
  readonly outcome: string
  readonly durationMs: number
  readonly firstTokenMs?: number | null
  readonly model?: string | null
  readonly provider?: string | null
  readonly attempts?: number
  readonly inputTokens?: number | null
  readonly outputTokens?: number | null
  readonly finish?: string | null
  readonly error?: FailureCode | null
}

export interface Log {
  exchange(line: ExchangeLine): void
  listening(url: string, adminUrl: string): void
  /** A change of state an operator wants to see; `message` is a constant of ours. */
  notice(message: string, fields?: Readonly<Record<string, string | number | boolean>>): void
  /**
   * Something we did not foresee. Only class and code of the error are written, and the stack's function
   * names at debug level: messages may carry what callers or providers sent.
   */
  fault(message: string, error: unknown): void
}

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const sink = destination === undefined ? pino(options) : pino(options, destination)
  return {
    exchange: line => sink.info(line, 'exchange'),
    listening: (url, adminUrl) => sink.info({ url, adminUrl }, 'listening'),
    notice: (message, fields) => sink.info(fields ?? {}, message),
    fault: (message, error) => sink.error(faultFields(error, level), message),
  }
}

function faultFields(error: unknown, level: LogLevel): Record<string, string> {
  if (!(error instanceof Error)) return { errorClass: typeof error }
  const fields: Record<string, string> = { errorClass: error.constructor.name }
  const code: unknown = Reflect.get(error, 'code')
  if (typeof code === 'string') fields['errorCode'] = code
  if (level === 'debug' || level === 'trace') fields['at'] = stackFrames(error)
  return fields
}

/** Where it happened: the frames of the stack without its first lines, which repeat the message. */
function stackFrames(error: Error): string {
  return (error.stack ?? '')
    .split('\n')
    .filter(line => line.startsWith('    at '))
    .slice(0, 8)
    .map(line => line.trim())
    .join(' | ')
}
