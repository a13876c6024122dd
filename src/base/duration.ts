/** Durations as providers write them: `1s`, `6m0s`, `12ms`, `1h2m3.5s`. Pure. */

/** The longest time that a provider may ask clients to wait: longer is a mistake, or useless to a caller. */
export const WAIT_MAX_SECONDS = 86_400

const DURATION =
  /^(?=\d)(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?$/

/** Seconds; null for text that is no duration. */
export function durationSeconds(text: string): number | null {
  const match = DURATION.exec(text)
  if (match === null) return null
  const [, hours = '0', minutes = '0', seconds = '0', milliseconds = '0'] = match
  return Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds) + Number(milliseconds) / 1000
}
