/** Names of time zones, as the IANA database has them. Pure. */

const ZONE_MAX_CHARS = 64

/** True for a name such as `Europe/Berlin` or `UTC`. */
export function isTimeZone(name: string): boolean {
  if (name.length > ZONE_MAX_CHARS) return false
  try {
    new Intl.DateTimeFormat('en', { timeZone: name })
    return true
  } catch {
    return false
  }
}
