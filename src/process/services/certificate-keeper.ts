/**
 * Watches the certificate files of the public port: when they change, validates them and has every thread use the new
 * certificate. A faulty pair only causes a log line and increments a counter. Main thread.
 */
import { type Clock, isoInstant, type Timer, within } from '../../base/clock.ts'
import type { ProcessLog } from '../../base/log/log.ts'
import { ConfigError } from '../../base/settings/check.ts'
import {
  type Certificate,
  type CertificateFiles,
  certificateStamp,
  readCertificate,
} from '../../server/certificate.ts'

interface CertificateKeeperDeps {
  readonly files: CertificateFiles
  readonly clock: Clock
  readonly log: Pick<ProcessLog, 'notice' | 'error'>
  /** Lets every thread serve with this version. False: not all of them could. */
  readonly onChange: (version: string) => Promise<boolean>
}

/** Outcomes of reloads, as the label of `gateway_tls_reloads_total`. */
export const RELOAD_OUTCOMES = ['taken', 'refused'] as const
type ReloadOutcome = (typeof RELOAD_OUTCOMES)[number]

/** Polling sees what notifications miss: files that are replaced, symbolic links, mounted volumes. */
const POLL_MS = 1_000
/** A refused pair is checked again: the clock may have been wrong, or a thread may have lacked memory. */
const RECHECK_INTERVAL_MS = 60_000
/** Maximum wait for a thread. One that hangs switches to the certificate when it continues. */
const THREAD_TIMEOUT_MS = 5_000
const NOT_ACCEPTED =
  'listen.tls: the HTTP library cannot use these files, or they changed while it was reading them'

export class CertificateKeeper {
  readonly reloads: Record<ReloadOutcome, number> = { taken: 0, refused: 0 }
  readonly #deps: CertificateKeeperDeps
  #current: Certificate
  /** The state of the files at the last check; null: they must be checked again. */
  #checkedStamp: string | null
  /** A state of the files in which they were faulty once. */
  #suspectStamp: string | null = null
  /** The logged error for `#checkedStamp`; null: none. */
  #fault: string | null = null
  /** Monotonic: when a pair with a fault is checked again. */
  #recheckMs = 0
  #timer: Timer | null = null
  #checking: Promise<void> | null = null
  #closed = false

  /** @throws ConfigError when the files are no good pair */
  constructor(deps: CertificateKeeperDeps) {
    this.#deps = deps
    this.#checkedStamp = certificateStamp(deps.files)
    this.#current = readCertificate(deps.files, deps.clock.nowMs())
    this.#scheduleCheck()
  }

  /** Unix milliseconds. */
  get expiresAtMs(): number {
    return this.#current.expiresAtMs
  }

  /** Reads the files now, and reports errors at once. Resolves when all threads have the certificate. */
  async reload(): Promise<void> {
    await this.#checking
    await this.#check(true)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#checking
  }

  #scheduleCheck(): void {
    if (this.#closed) return
    this.#timer?.cancel()
    this.#timer = this.#deps.clock.after(POLL_MS, () => void this.#check(false))
  }

  #check(isRequested: boolean): Promise<void> {
    this.#checking ??= this.#checkFiles(isRequested).finally(() => {
      this.#checking = null
      this.#scheduleCheck()
    })
    return this.#checking
  }

  async #checkFiles(isRequested: boolean): Promise<void> {
    const { files, clock, log } = this.#deps
    const stamp = certificateStamp(files)
    const isDue = this.#fault !== null && clock.monotonicMs() >= this.#recheckMs
    if (this.#closed || (!isRequested && !isDue && stamp === this.#checkedStamp)) return
    const isSame = stamp === this.#checkedStamp
    let fault: string | null = null
    try {
      const certificate = readCertificate(files, clock.nowMs())
      if (certificate.version !== this.#current.version) {
        if (await this.#exchange(certificate.version)) {
          this.#current = certificate
          this.reloads.taken++
          log.notice('tls', 'certificate reloaded', { expires: isoInstant(certificate.expiresAtMs) })
        } else fault = NOT_ACCEPTED
      }
    } catch (error) {
      fault = error instanceof ConfigError ? error.message : NOT_ACCEPTED
    }
    // A file may be half written, or only one of the two replaced: an error counts if nothing has changed at the next
    // check.
    const isFirst = fault !== null && !isRequested && this.#suspectStamp !== stamp
    this.#suspectStamp = fault === null ? null : stamp
    this.#checkedStamp = isFirst ? null : stamp
    const isLogged = isSame && !isRequested && fault === this.#fault
    this.#fault = isFirst ? null : fault
    this.#recheckMs = clock.monotonicMs() + RECHECK_INTERVAL_MS
    if (fault === null || isFirst || isLogged) return
    this.reloads.refused++
    log.error('tls', `certificate not reloaded; still using the old one: ${fault}`)
  }

  /** True also for threads that do not answer in time. */
  #exchange(version: string): Promise<boolean> {
    const { clock, onChange } = this.#deps
    return within(clock, THREAD_TIMEOUT_MS, onChange(version)).catch(() => true)
  }
}
