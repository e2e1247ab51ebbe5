/** The typical run time of jobs in this process. Undefined before any has ended. */
export class JobLength {
  meanMs: number | undefined;

  add(ms: number): void {
    this.meanMs = this.meanMs === undefined ? ms : 0.8 * this.meanMs + 0.2 * ms;
  }
}
