/**
 * The running captures, as one thread knows them. Decides which requests are recorded, and sends the recordings to the
 * main thread: its queue is bounded, and recordings that do not fit are counted. While no capture runs, a request costs
 * one check of `isIdle`.
 */
import type { Clock } from '../../base/clock.ts'
import type { ClientRequest } from '../../exchange/exchange.ts'
import type { Observer } from '../../exchange/observer.ts'
import { DEFAULT_WORKSPACE_ID } from '../../storage/store.ts'
import { Recording } from './recording.ts'

/** A running capture. Plain data. */
export interface CaptureTerms {
  readonly id: string
  readonly organizationId: string
  /** Null for a capture of a whole workspace. */
  readonly keyHash: string | null
  readonly workspaceId: string | null
  /** Unix milliseconds. Later requests are not included. */
  readonly endsAtMs: number
}

/** The record of one request for one capture, as a thread sends it. */
export interface CapturedRequest {
  readonly capture: string
  readonly organizationId: string
  /** A line of JSON with its line end; null if there was no room for it. */
  readonly record: Uint8Array<ArrayBuffer> | null
}

interface RunningCapturesDeps {
  readonly clock: Clock
  readonly send: (request: CapturedRequest, transferred: readonly ArrayBuffer[]) => void
}

/** Limit for records of a thread that the main thread has not written yet. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024
/** Limit for all requests of a thread that are being recorded. */
const MAX_RECORDING_BYTES = 64 * 1024 * 1024

export class RunningCaptures implements Observer {
  /** True while no capture runs. Written only here. */
  isIdle = true
  readonly #deps: RunningCapturesDeps
  /** Running captures by organization. */
  #running: ReadonlyMap<string, readonly CaptureTerms[]> = new Map()
  readonly #waiting = new SharedRoom(MAX_WAITING_BYTES)
  readonly #held = new SharedRoom(MAX_RECORDING_BYTES)

  constructor(deps: RunningCapturesDeps) {
    this.#deps = deps
  }

  /** Called by the main thread with the running captures. */
  set(running: readonly CaptureTerms[]): void {
    this.#running = Map.groupBy(running, ({ organizationId }) => organizationId)
    this.isIdle = running.length === 0
  }

  /** Called by the main thread when it has written or dropped these bytes of an organization's captures. */
  freeBytes(organizationId: string, bytes: number): void {
    this.#waiting.release(organizationId, bytes)
  }

  /** The captures that include requests of a key now. */
  capturesFor(organizationId: string, workspaceId: string | null, keyHash: string): readonly CaptureTerms[] {
    if (this.isIdle) return []
    const nowMs = this.#deps.clock.nowMs()
    return (this.#running.get(organizationId) ?? []).filter(
      capture =>
        (capture.keyHash === null
          ? capture.workspaceId === (workspaceId ?? DEFAULT_WORKSPACE_ID)
          : capture.keyHash === keyHash) && nowMs < capture.endsAtMs,
    )
  }

  /** Starts to record a request; null if no capture includes it, or its data must not be kept. */
  open(clientRequest: ClientRequest): Recording | null {
    const { caller, request } = clientRequest
    const { organizationId } = caller
    const captures = this.capturesFor(organizationId, caller.workspaceId, caller.keyHash)
    if (captures.length === 0 || forbidsStorage(request)) return null
    return new Recording(clientRequest, {
      clock: this.#deps.clock,
      hold: bytes => this.#held.reserve(organizationId, bytes),
      release: bytes => this.#held.release(organizationId, bytes),
      keep: record => this.#send(captures, record),
    })
  }

  #send(captures: readonly CaptureTerms[], record: Uint8Array<ArrayBuffer> | null): void {
    for (const { id: capture, organizationId } of captures) {
      if (record === null || !this.#waiting.reserve(organizationId, record.length)) {
        this.#deps.send({ capture, organizationId, record: null }, [])
        continue
      }
      // Copied for several captures, because the memory is transferred.
      const copy = captures.length === 1 ? record : record.slice()
      this.#deps.send({ capture, organizationId, record: copy }, [copy.buffer])
    }
  }
}

/** Memory that organizations share. None may use more than half of it. */
class SharedRoom {
  readonly #maxBytes: number
  readonly #bytesByOrganization = new Map<string, number>()
  #bytes = 0

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Returns false if there is not enough room. */
  reserve(organizationId: string, bytes: number): boolean {
    const heldBytes = (this.#bytesByOrganization.get(organizationId) ?? 0) + bytes
    if (heldBytes > this.#maxBytes / 2 || this.#bytes + bytes > this.#maxBytes) return false
    this.#bytesByOrganization.set(organizationId, heldBytes)
    this.#bytes += bytes
    return true
  }

  release(organizationId: string, bytes: number): void {
    const heldBytes = this.#bytesByOrganization.get(organizationId) ?? 0
    const releasedBytes = Math.min(heldBytes, bytes)
    this.#bytes -= releasedBytes
    if (heldBytes > releasedBytes) this.#bytesByOrganization.set(organizationId, heldBytes - releasedBytes)
    else this.#bytesByOrganization.delete(organizationId)
  }
}

/** True if the caller does not want its data to be stored. */
export function forbidsStorage({ provider }: Pick<ClientRequest['request'], 'provider'>): boolean {
  return provider?.zdr === true || provider?.data_collection === 'deny'
}
