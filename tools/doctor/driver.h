/* tools/doctor/driver.h
 * Reading the probe's answers; shared by the checks that do. */
#ifndef SUBLET_TOOLS_DOCTOR_DRIVER_H
#define SUBLET_TOOLS_DOCTOR_DRIVER_H

#include "tools/doctor/doctor.h"

/* cuInit succeeded. */
bool driver_answers(const struct doctor *doctor);

/* True when the driver answers and @answer (may be NULL) was reached by the probe or left out on purpose; else says
 * `missing`, and why it was not examined. */
bool driver_examined(const struct doctor *doctor, struct finding *finding, const struct probe_answer *answer);

/* "cuMemCreate: CUDA_ERROR_NOT_PERMITTED". Returns @text. */
const char *answer_text(const struct probe_answer *answer, char *text, size_t room);

#endif
