/** A duration as people read it: "269 ms", and from one second on "1.5 s". */
export function durationOf(ms: number): string {
  return ms < 999.5 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
