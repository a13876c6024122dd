/**
 * Replies and refusals of containers: the output of a run, the reason it was stopped, or the reason there is no
 * container. Pure.
 */
import { GatewayError, RETRY_AFTER_SECONDS } from '../../base/errors.ts'
import type { EngineResult, LimitStop, RunOutput } from './engine.ts'
import type { RunReply, RunRequest } from './sandbox.ts'
import type { SandboxSettings } from './settings.ts'

/** Maximum files, folders and links of one container. */
export const MAX_ENTRIES = 2_000

export function notOfferedError(reason: string): GatewayError {
  return new GatewayError(
    'invalid_request',
    `The sandbox is not available here: ${reason} (setting tools.sandbox)`,
  )
}

export function noNetworkError(reason: string): GatewayError {
  return new GatewayError('invalid_request', `${reason}: network_policy must be {type: disabled}`)
}

export function notFoundError(): GatewayError {
  return new GatewayError('not_found', 'There is no container with this id; it may have been deleted')
}

export function busyError(): GatewayError {
  return new GatewayError('overloaded', 'The sandbox is at capacity; try again later', {
    retryAfterSeconds: RETRY_AFTER_SECONDS.transfer,
  })
}

export function replyOf(
  { outputs, stopped, lost }: EngineResult,
  { maxOutputLength }: RunRequest,
  limits: Pick<SandboxSettings, 'memoryMb' | 'cpuSeconds' | 'fileMb'>,
): RunReply {
  const shownOutputs = outputs.length > 0 || stopped === null ? outputs : [stoppedOutput(stopped)]
  const notice =
    stopped === null ? null : `${stopText(stopped, limits)}.${lost === null ? '' : LOSS_TEXTS[lost]}`
  return { outputs: shownOutputs.map(output => cutOutput(output, maxOutputLength)), notice }
}

const LOSS_TEXTS = {
  changes: ' The files are as they were before this call',
  files: ' All files were deleted',
}

function stoppedOutput(stop: LimitStop): RunOutput {
  return { stdout: '', stderr: '', exitCode: null, timedOut: stop === 'time' }
}

function stopText(
  stop: LimitStop,
  { memoryMb, cpuSeconds, fileMb }: Pick<SandboxSettings, 'memoryMb' | 'cpuSeconds' | 'fileMb'>,
): string {
  switch (stop) {
    case 'time':
      return 'The run took too long and was stopped'
    case 'cpu':
      return `The run was stopped: it used more than ${cpuSeconds} s of processor time`
    case 'memory':
      return `The run was stopped: it used more than ${memoryMb} MB of memory`
    case 'output':
      return 'The run was stopped: it wrote too much output'
    case 'files':
      return `The run was stopped: a container may have at most ${fileMb} MB of files and ${MAX_ENTRIES} names`
    case 'failed':
      return 'The run could not be started'
  }
}

function cutOutput(output: RunOutput, maxLength: number | null): RunOutput {
  if (maxLength === null) return output
  const cutText = (text: string): string => text.slice(0, maxLength).toWellFormed()
  return { ...output, stdout: cutText(output.stdout), stderr: cutText(output.stderr) }
}
